"""Random changefeeds, round by round: after each the tables are what the oracle says, whole rows, none too many."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import yaml
from deltalake import DeltaTable
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from histories import KEYS, PACKED, History, packed_histories
from oracle import replay
from penstock.pipeline import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from penstock.position import Hlc

SIZE = replace(PACKED, keys=30, steps=250, rounds=4)
HISTORIES = st.one_of(packed_histories(SIZE), packed_histories(replace(SIZE, recreated=True)))
#: One example is a hundred lives in four rounds, and takes its time: more of them where there is more of it.
EXAMPLES = int(os.environ.get("PENSTOCK_EXAMPLES", "2"))


@given(history=HISTORIES)
@settings(max_examples=EXAMPLES, phases=[Phase.explicit, Phase.reuse, Phase.generate])  # a seed does not shrink
def test_after_every_round_the_tables_are_the_oracles(spark: SparkSession, history: History):
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        pipeline = Pipeline.from_file(write_config(place, history))
        for added in history.rounds:
            for path, content in added.files.items():
                (place / "feed" / path).parent.mkdir(parents=True, exist_ok=True)
                (place / "feed" / path).write_bytes(content)
            report = pipeline.run(spark).feeds[0]
            assert report.watermark == (None if added.watermark is None else str(added.watermark))
            assert {table: held(place / "lake" / table, KEYS[table]) for table in history.ddl} == expected(
                history, added.watermark
            )
        before = versions(place)
        assert pipeline.run(spark).feeds[0].state in {"idle", "waiting"}
        assert versions(place) == before


def write_config(place: Path, history: History) -> Path:
    (place / "feed").mkdir()
    for table, ddl in history.ddl.items():
        (place / f"{table}.sql").write_text(ddl, encoding="utf-8")
    tables = {table: {"ddl": f"{table}.sql"} for table in history.ddl}
    feeds = {"crdb": {"kind": "cockroachdb", "path": "feed", "tables": tables}}
    config = {"name": "histories", "destination": {"path": "lake"}, "feeds": feeds}
    (place / "penstock.yml").write_text(yaml.safe_dump(config), encoding="utf-8")
    return place / "penstock.yml"


def expected(history: History, watermark: Hlc | None) -> dict[str, list[tuple]]:
    tables = {table: {} for table in history.ddl} | replay(history.events, watermark)
    return {
        table: sorted((key, dict(row) | {"__crdb__updated": str(at)}) for key, (at, row) in rows.items())
        for table, rows in tables.items()
    }


def held(target: Path, key: tuple[str, ...]) -> list[tuple]:
    """Read a target by delta-rs, an implementation that shares nothing with the writer; no table is an empty one."""
    if not (target / "_delta_log").is_dir():
        return []
    rows = DeltaTable(str(target)).to_pyarrow_table().to_pylist()
    return sorted(((tuple(row[column] for column in key), row) for row in rows), key=lambda pair: pair[0])


def versions(place: Path) -> dict[str, int]:
    return {str(log.parent): DeltaTable(str(log.parent)).version() for log in (place / "lake").rglob("_delta_log")}
