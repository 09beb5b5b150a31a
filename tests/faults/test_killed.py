"""A real process killed by SIGKILL at every step of a load; the next run ends in the exact state, nothing doubled."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable as RustTable

from penstock.pipeline import Pipeline
from support.feedtree import DATED, SCHEMA, FeedTree

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

STEPS = [
    "before-register",
    "files-written",
    "registered",
    "decoded",
    "before-commit:a",
    "committed:a",
    "committed:b",
    "set-aside",
    "before-consume",
    "consumed",
]


@pytest.mark.slow
@pytest.mark.parametrize("step", STEPS)
def test_a_run_killed_at_any_step_is_finished_by_the_next(step: str, spark: SparkSession, tmp_path: Path) -> None:
    tree = FeedTree(tmp_path, {"a": DATED, "b": SCHEMA})
    tree.write("a", [(1, "old", 1), (2, "two", 1)])
    tree.write("b", [(1, "old", 1)])
    tree.resolve(2)
    pipeline = Pipeline.from_file(tree.config)
    pipeline.run(spark)

    tree.write("a", [(1, "new", 3), (2, None, 4), (3, "held", 9)])
    far = {"after": {"id": 4, "v": "far", "d": "infinity"}, "key": [4], "updated": "1770067704000000000.0000000000"}
    tree.write_lines("a", [json.dumps(far)], named=4)
    tree.write("b", [(1, "new", 3), (5, "five", 3)])
    tree.resolve(5)
    killed = subprocess.run(
        [sys.executable, "-m", "penstock", "run", "-c", str(tree.config)],
        env={**os.environ, "PENSTOCK_FAILPOINT": step, "TZ": "America/New_York"},
        capture_output=True,
        check=False,
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()

    pipeline.run(spark)
    assert tree.rows("a") == {1: "new", 4: "far"}
    assert tree.rows("b") == {1: "new", 5: "five"}
    tree.resolve(10)
    pipeline.run(spark)
    assert tree.rows("a") == {1: "new", 3: "held", 4: "far"}

    for table, loads in (("a", [1, 2, 3]), ("b", [1, 2])):
        tags = [
            json.loads(one["userMetadata"])
            for one in RustTable(str(tree.target(table))).history()
            if one.get("userMetadata")
        ]
        assert sorted(tag["load"] for tag in tags) == loads, f"{table}: one commit per load"
    aside = RustTable(str(tmp_path / "lake" / "_penstock" / "set_aside")).to_pyarrow_table().to_pylist()
    assert [(row["key"], row["column"], row["text"]) for row in aside] == [('["4"]', "d", "infinity")]
