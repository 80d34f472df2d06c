"""A publisher whose process ends now and then after a document was applied and before its rows are
marked: CONFIG (JSON), JOURNAL, SEED.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from eventlog import Event, Publisher

KILLED: Final = 9


def main(config: dict[str, Any], journal: Path, seed: int) -> None:
    chance = random.Random(seed)

    def receive(body: bytes, events: Sequence[Event]) -> None:
        applied = [[e.association, e.operation, e.event_id, e.attributes] for e in events]
        with journal.open("ab") as file:
            file.write(json.dumps(applied).encode() + b"\n")
        if chance.random() < 0.15:
            os._exit(KILLED)

    Publisher.from_config(config, sink=receive, environ={}).run_once()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]))
