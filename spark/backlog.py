"""``spark-submit spark/backlog.py --config FILE --out DIR``: the arguments of ``eventlog backlog``."""

import sys

from eventlog.cli import run

sys.exit(run(["backlog", *sys.argv[1:]]))
