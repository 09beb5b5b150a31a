"""Every file of every conformance case, decoded and replayed, is what the case says; in both formats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from feeds.cockroachdb import replay

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

FAULTS = {
    "36-alter-primary-key.json": {"ROW_KEY_VALUE"},
    "38-missing-updated.json": {"ROW_NO_UPDATED"},
    "38-missing-updated.parquet": {"ROW_NO_UPDATED"},
    "38b-bare.json": {"ROW_BARE"},
    "39b-enriched-no-hlc.json": {"ROW_NO_TS_HLC"},
}


@pytest.fixture(scope="module", params=["json", "parquet"])
def cases(request: pytest.FixtureRequest, spark: SparkSession, conformance: Path) -> dict[str, replay.Case]:
    return replay.load(spark, conformance, request.param)


def test_rows_and_cells_set_aside_are_the_expected_ones(cases: dict[str, replay.Case]) -> None:
    compared = 0
    for name, case in cases.items():
        if name in FAULTS:
            continue
        aside: set[tuple[Any, ...]] = set()
        for number, round_ in enumerate(case.spec["rounds"]):
            if "error" in round_:
                continue
            aside |= {(s["table"], tuple(s["key"]), s["column"], s["text"]) for s in round_.get("set_aside", [])}
            for table, expected in (round_["expected"] or {}).items():
                schema_id = _schema_in_force(case, table, expected)
                schema = case.schema(table, schema_id)
                columns = [c for c in expected["columns"] if c not in expected.get("optional_columns", [])]
                held = {
                    tuple(replay.row_text(row, column, schema) for column in columns)
                    for row in replay.state(case, table, schema_id, number).values()
                }
                places = [expected["columns"].index(column) for column in columns]
                wanted = {
                    tuple(replay.expected_text(row[i], c, schema) for i, c in zip(places, columns, strict=True))
                    for row in expected["rows"]
                }
                assert held == wanted, (name, number, table)
                compared += len(wanted)
        assert _set_aside(case) == aside, name
    assert compared > 1000


def test_faults_are_the_expected_ones(cases: dict[str, replay.Case]) -> None:
    for name, case in cases.items():
        oldest = {table: min(spec["ddl"], key=int) for table, spec in case.spec["tables"].items()}
        codes = {e["_fault"]["code"] for t, i in oldest.items() for e in case.events[t, i] if e["_fault"] is not None}
        assert codes == FAULTS.get(name, set()), name


def _schema_in_force(case: replay.Case, table: str, expected: dict[str, Any]) -> str:
    """The newest definition with just the columns the case expects at that round, or the newest of all."""
    wanted = {*expected["columns"]} - {*expected.get("optional_columns", []), "__crdb__updated"}
    ids = sorted(case.spec["tables"][table]["ddl"], key=int)
    fitting = [i for i in ids if {c.name for c in case.schema(table, i).stored} == wanted]
    return (fitting or ids)[-1]


def _set_aside(case: replay.Case) -> set[tuple[Any, ...]]:
    cells = set()
    for (table, schema_id), events in case.events.items():
        schema = case.schema(table, schema_id)
        for event in events:
            key = tuple(replay.row_text(event, name, schema) for name in schema.primary_key)
            cells |= {(table, key, cell["column"], cell["text"]) for cell in event["_set_aside"] or []}
    return cells
