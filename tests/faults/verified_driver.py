"""A publisher that applies events to a table, until it is killed: CONFIG (JSON), URL of the
table.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import sqlalchemy as sa

sys.path.append(str(Path(__file__).parents[1]))
from verified import Table

from eventlog import Publisher

if __name__ == "__main__":
    config, url = json.loads(sys.argv[1]), sys.argv[2]
    Publisher.from_config(config, sink=Table(sa.create_engine(url))).run()
