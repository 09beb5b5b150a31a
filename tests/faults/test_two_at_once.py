"""Two runs at once, again and again: one wins each load, the other goes away, the tables are exact."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from deltalake import DeltaTable as RustTable

from support.feedtree import SCHEMA, FeedTree

if TYPE_CHECKING:
    from collections.abc import Iterator

ROUNDS = 20


@pytest.fixture
def workers() -> Iterator[list[subprocess.Popen[str]]]:
    started = [
        subprocess.Popen(
            [sys.executable, str(Path(__file__).with_name("worker.py"))],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(2)
    ]
    for worker in started:
        assert worker.stdout
        assert worker.stdout.readline() == "ready\n"
    yield started
    for worker in started:
        worker.terminate()
        worker.wait()


@pytest.mark.slow
def test_of_two_runs_at_once_one_wins_each_load(workers: list[subprocess.Popen[str]], tmp_path: Path) -> None:
    tree = FeedTree(tmp_path, {"a": SCHEMA, "b": SCHEMA})
    for round_ in range(1, ROUNDS + 1):
        for table in ("a", "b"):
            tree.write(table, [(key, f"{round_}", round_ * 10 + key) for key in range(3)])
        tree.resolve(round_ * 10 + 5)
        for worker in workers:
            assert worker.stdin
            worker.stdin.write(f"{tree.config}\n")
            worker.stdin.flush()
        said = [worker.stdout.readline().split() for worker in workers if worker.stdout]
        assert sorted(word[0] for word in said) in (["0", "0"], ["0", "75"]), said
        assert [word[1] for word in said].count("applied") == 1, said
        if "LOAD_TAKEN" not in [word[1] for word in said]:
            assert sorted(word[1] for word in said) == ["applied", "idle"], said
        for table in ("a", "b"):
            assert tree.rows(table) == dict.fromkeys(range(3), f"{round_}")
    for table in ("a", "b"):
        loads = [one["userMetadata"] for one in RustTable(str(tree.target(table))).history() if one.get("userMetadata")]
        assert len(loads) == len(set(loads)) == ROUNDS
