"""A process of its own that runs `penstock run` each time it is told, as a scheduler would; prints exit codes."""

from __future__ import annotations

import sys

from penstock.errors import PenstockError
from penstock.pipeline import Pipeline
from penstock.sessions import SMALL_DATA, jvm_log_path, session


def main() -> None:
    spark = session(jvm_log=jvm_log_path(), settings=SMALL_DATA)
    print("ready", flush=True)
    for line in sys.stdin:
        try:
            report = Pipeline.from_file(line.strip()).run(spark).to_dict()["feeds"][0]
            print(f"0 {report['state']} {report['load']}", flush=True)
        except PenstockError as error:
            print(f"{error.exit_code} {error.code} -", flush=True)


main()
