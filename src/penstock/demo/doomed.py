"""A run in a process of its own, made to die: `python -m penstock.demo.doomed CONFIG`.

Spark is started at once and the run waits for a line on stdin, so that its start costs the tour no time. Without the
line (whoever started it is gone) it ends and touches nothing. `PENSTOCK_FAILPOINT` says where it dies.
"""

from __future__ import annotations

import sys

from penstock.pipeline import Pipeline
from penstock.sessions import SMALL_DATA, session

if __name__ == "__main__":
    pipeline = Pipeline.from_file(sys.argv[1])
    spark = session("penstock-demo-doomed", settings=SMALL_DATA)
    if sys.stdin.readline():
        pipeline.run(spark)
