"""``spark-submit spark/backlog.py run --out DIR``: arguments of ``eventlog backlog``."""

import sys

from eventlog.cli import run
from eventlog.spark.session.session import keep_output_apart

keep_output_apart()
sys.exit(run(["backlog", *sys.argv[1:]]))
