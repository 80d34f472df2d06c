"""``spark-submit spark/convert.py --from FORMAT --to FORMAT IN OUT``: the arguments of ``eventlog convert``."""

import sys

from eventlog.cli import run

sys.exit(run(["convert", "--spark", *sys.argv[1:]]))
