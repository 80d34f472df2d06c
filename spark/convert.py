"""``spark-submit spark/convert.py --from FORMAT --to FORMAT IN OUT``: the arguments of ``eventlog
convert``.
"""

import sys

from eventlog.cli import run
from eventlog.spark.session.session import keep_output_apart

keep_output_apart()
sys.exit(run(["convert", "--spark", *sys.argv[1:]]))
