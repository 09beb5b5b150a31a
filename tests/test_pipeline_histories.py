"""Random histories of a changefeed, round by round through the pipeline, against the oracle."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from deltalake import DeltaTable as RustTable
from hypothesis import given, settings

from histories import KEYS, History, Size, packed_histories
from oracle import replay
from penstock.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# One example is hundreds of transactions over three tables with everything that goes wrong in a feed.
EXAMPLES = 12 if os.environ.get("PENSTOCK_MATRIX") == "full" else 3


def lay_out(history: History, place: Path) -> Path:
    """Write penstock.yml and the definitions of a history."""
    tables = {}
    for number, (table, ddl) in enumerate(history.ddl.items()):
        (place / f"{number}.sql").write_text(ddl)
        tables[table] = {"ddl": f"{number}.sql"}
    (place / "feed").mkdir()
    feeds = {"crdb": {"kind": "cockroachdb", "path": "feed", "tables": tables}}
    config = place / "penstock.yml"
    config.write_text(yaml.safe_dump({"name": "history", "destination": {"path": "lake"}, "feeds": feeds}))
    return config


def held(place: Path, table: str) -> dict[tuple[Any, ...], tuple[str, dict[str, Any]]]:
    """A target as the oracle has it: key → (position, row)."""
    path = place / "lake" / table
    if not (path / "_delta_log").is_dir():
        return {}
    rows = RustTable(str(path)).to_pyarrow_table().to_pylist()
    found = {tuple(row[name] for name in KEYS[table]): (row.pop("__crdb__updated"), row) for row in rows}
    assert len(found) == len(rows), f"{table} has a key twice"
    return found


def check(history: History, spark: SparkSession) -> None:
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        pipeline = Pipeline.from_file(lay_out(history, place))
        for number, added in enumerate(history.rounds, 1):
            for path, content in added.files.items():
                (place / "feed" / path).parent.mkdir(parents=True, exist_ok=True)
                (place / "feed" / path).write_bytes(content)
            report = pipeline.run(spark).feeds[0]
            newest = None if added.watermark is None else str(added.watermark)
            assert report.watermark == newest, f"round {number}"
            truth = replay(history.events, added.watermark)
            for table in history.ddl:
                expected = {key: (str(at), dict(row)) for key, (at, row) in truth.get(table, {}).items()}
                assert held(place, table) == expected, f"round {number}, {table}"


@pytest.mark.parametrize("recreated", [False, True], ids=["one feed", "feed recreated from an older cursor"])
def test_conformance_random_histories_equal_the_oracle_after_every_round(spark: SparkSession, recreated: bool) -> None:
    @settings(max_examples=EXAMPLES)
    @given(packed_histories(Size(keys=40, steps=600, rounds=5, recreated=recreated)))
    def every(history: History) -> None:
        check(history, spark)

    every()
