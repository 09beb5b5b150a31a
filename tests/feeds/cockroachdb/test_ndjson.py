"""NDJSON lines beyond the conformance cases: one job per table, one line per behaviour."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from penstock.feeds.cockroachdb import ndjson
from penstock.feeds.cockroachdb.ddl import TableSchema, from_columns
from penstock.feeds.cockroachdb.rows import FAULTS

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession

AT = "1770067701000000000.0000000000"
TAIL = f'"key": [1], "updated": "{AT}"'

# Lines of t(id INT8, v STRING, a INT8[]) -> the fault's code, or None.
LINES = {
    f'{{"after": {{"id": 1, "v": "x"}}, {TAIL}}}': None,
    f'{{"after": null, {TAIL}}}': None,
    f'{{"after": {{"id": 1}}, {TAIL}, "topic": "t", "mvcc_timestamp": "1.0"}}': None,
    f'{{"after": {{"id": 1}}, "key": [1], "updated": "{AT}?"}}': None,
    f'  {{"after": {{"id": 1}}, {TAIL}}}  ': None,
    '{"after": {"id": 1}': "ROW_NOT_JSON",
    "null": "ROW_NOT_JSON",
    "5": "ROW_NOT_JSON",
    "not json": "ROW_NOT_JSON",
    '{"__crdb__": {"key": [1], "updated": "1.0000000000"}, "id": 1}': "ROW_BARE",
    f'{{"after": 5, {TAIL}}}': "ROW_AFTER",
    f'{{"after": [1], {TAIL}}}': "ROW_AFTER",
    f'{{"after": null, "key": {{"id": 1}}, "op": "u", "source": {{"ts_hlc": "{AT}"}}}}': "ROW_AFTER",
    f'{{"after": null, "updated": "{AT}"}}': "ROW_NO_KEY",
    f'{{"after": null, "key": null, "updated": "{AT}"}}': "ROW_NO_KEY",
    f'{{"after": null, "key": {{"id": 1}}, "updated": "{AT}"}}': "ROW_NO_KEY",
    f'{{"after": null, "key": [1], "op": "d", "source": {{"ts_hlc": "{AT}"}}}}': "ROW_NO_KEY",
    f'{{"after": null, "key": [], "updated": "{AT}"}}': "ROW_KEY_ARITY",
    f'{{"after": null, "key": [1, 2], "updated": "{AT}"}}': "ROW_KEY_ARITY",
    f'{{"after": null, "key": [null], "updated": "{AT}"}}': "ROW_KEY_NULL",
    f'{{"after": null, "key": {{"x": 1}}, "op": "d", "source": {{"ts_hlc": "{AT}"}}}}': "ROW_KEY_NULL",
    f'{{"after": null, "key": ["c"], "updated": "{AT}"}}': "ROW_KEY_VALUE",
    f'{{"after": null, "key": [1.5], "updated": "{AT}"}}': "ROW_KEY_VALUE",
    f'{{"after": null, "key": [9223372036854775808], "updated": "{AT}"}}': "ROW_KEY_VALUE",
    '{"after": null, "key": [1]}': "ROW_NO_UPDATED",
    '{"after": null, "key": [1], "updated": null}': "ROW_NO_UPDATED",
    '{"after": null, "key": {"id": 1}, "op": "d", "ts_ns": 5}': "ROW_NO_TS_HLC",
    '{"after": null, "key": [1], "updated": "x"}': "ROW_UPDATED",
    '{"after": null, "key": [1], "updated": "1770067701.000000000,2"}': "ROW_UPDATED",
    '{"after": null, "key": [1], "updated": "1.2"}': "ROW_UPDATED",
    '{"after": null, "key": [1], "updated": "9223372036854775808.0000000000"}': "ROW_UPDATED",
    '{"after": null, "key": [1], "updated": "1.2147483648"}': "ROW_UPDATED",
    '{"after": null, "key": [1], "updated": "9223372036854775807.2147483647"}': None,
    f'{{"after": {{"id": 1, "a": 5}}, {TAIL}}}': "ROW_VALUE",
}


def decode(spark: SparkSession, path: Path, lines: list[str], schema: TableSchema, **options: Any) -> DataFrame:
    path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    read = ndjson.read(spark, [str(path)], schema, before=options.get("before", False))
    return ndjson.decode(read, schema, **options)


@pytest.mark.parametrize("with_jsonb", [False, True])
def test_every_line_yields_a_row_and_faults_say_why(spark: SparkSession, tmp_path: Path, with_jsonb: bool) -> None:
    columns = {"id": "INT8", "v": "STRING", "a": "INT8[]", **({"j": "JSONB"} if with_jsonb else {})}
    schema = from_columns(columns, ["id"])
    rows = decode(spark, tmp_path / "lines.ndjson", list(LINES), schema).collect()
    assert [row["_fault"]["code"] if row["_fault"] else None for row in rows] == list(LINES.values())
    for row, line in zip(rows, LINES, strict=True):
        if row["_fault"]:
            others = {name for name, value in row.asDict().items() if value is not None}
            assert others == {"_fault", "_file"}, line
            assert row["_fault"]["code"] in FAULTS
            assert row["_fault"]["text"], line


def test_positions_and_operations(spark: SparkSession, tmp_path: Path) -> None:
    schema = from_columns({"id": "INT8", "v": "STRING"}, ["id"])
    lines = [
        f'{{"after": {{"id": 1, "v": "x"}}, "before": null, "key": [1], "updated": "{AT}?"}}',
        '{"after": null, "before": {"d": 1.50}, "key": [1], "updated": "999999999999999999.0000000001"}',
    ]
    rows = decode(spark, tmp_path / "a b+c%.ndjson", lines, schema, before=True)
    shown = rows.selectExpr("*", "unix_micros(_commit_timestamp) AS micros").drop("_commit_timestamp", "_set_aside")
    file = f"file:{tmp_path / 'a b+c%.ndjson'}"
    assert [tuple(row) for row in shown.collect()] == [
        (1, "x", AT, "UPSERT", "insert", AT, file, None, None, 1770067701000000),
        (
            *(1, None, "999999999999999999.0000000001", "DELETE", "delete", "0999999999999999999.0000000001"),
            *(file, None, '{"d": 1.50}', 999999999999999),
        ),
    ]


def test_json_keeps_its_kind(spark: SparkSession, tmp_path: Path) -> None:
    schema = from_columns({"id": "INT8", "j": "JSONB"}, ["id"])
    values = ['"true"', "true", '"1"', "1.50", '"{\\"a\\": 1}"', '{"a": 1E-7}', '"null"', '"é\\n"', "[]", '""']
    lines = [f'{{"after": {{"id": 1, "j": {value}}}, {TAIL}}}' for value in values]
    rows = decode(spark, tmp_path / "lines.ndjson", lines, schema).collect()
    assert [row["j"] for row in rows] == values


def test_cells_that_do_not_fit_are_set_aside(spark: SparkSession, tmp_path: Path) -> None:
    cells = {
        "INT2": ("40000", "does not fit INT2"),
        "INT4": ('"x"', "does not fit INT4"),
        "BOOL": ('"yes"', "does not fit BOOL"),
        "DECIMAL(10,2)": ("12.345", "does not fit DECIMAL(10,2)"),
        "DECIMAL(4,1)": ("1E-7", "does not fit DECIMAL(4,1)"),
        "DECIMAL(3,0)": ("1000", "does not fit DECIMAL(3,0)"),
        "DECIMAL(5,0)": ('"NaN"', "no Spark equivalent"),
        "DECIMAL": ('"x"', "does not fit DECIMAL"),
        "UUID": ('"63616665"', "does not fit UUID"),
        "TIME": ('"1:2"', "does not fit TIME"),
        "BYTES": ('"00ff"', "does not fit BYTES"),
        "DATE": ('"0044-03-15 BC"', "no Spark equivalent"),
        "TIMESTAMP": ('"0000-12-31T00:00:00"', "no Spark equivalent"),
        "TIMESTAMPTZ": ('"tomorrow"', "does not fit TIMESTAMPTZ"),
        "DATE[]": ('["2020-01-31", "infinity"]', "no Spark equivalent"),
    }
    schema = from_columns({"id": "INT8", **{kind: kind for kind in cells}}, ["id"])
    after = ", ".join(f'"{kind}": {value}' for kind, (value, _) in cells.items())
    [row] = decode(spark, tmp_path / "lines.ndjson", [f'{{"after": {{"id": 1, {after}}}, {TAIL}}}'], schema).collect()
    assert row["_fault"] is None
    assert all(row[kind] is None for kind in cells)
    assert [tuple(cell) for cell in row["_set_aside"]] == [
        (kind, value.strip('"') if value[0] == '"' else value.replace(", ", ","), reason)
        for kind, (value, reason) in cells.items()
    ]


def test_plain_notation_of_unbounded_decimals(spark: SparkSession, tmp_path: Path) -> None:
    written = {
        "1E-7": "0.0000001",
        "1E+30": "1" + "0" * 30,
        "0E+3": "0",
        "0E-12": "0.000000000000",
        "-1.50E-3": "-0.00150",
        "12.5E+3": "12500",
        "1.2345E+2": "123.45",
        "22.30": "22.30",
        "-0": "-0",
        "1" * 60: "1" * 60,
    }
    schema = from_columns({"id": "INT8", "d": "DECIMAL"}, ["id"])
    lines = [f'{{"after": {{"id": 1, "d": {value}}}, {TAIL}}}' for value in written]
    rows = decode(spark, tmp_path / "lines.ndjson", lines, schema).collect()
    assert [row["d"] for row in rows] == list(written.values())


def test_enriched_rows_with_payload_and_odd_names(spark: SparkSession, tmp_path: Path) -> None:
    schema = from_columns({"a.b": "DECIMAL(30,10)", "x`y": "STRING", "j": "JSONB"}, ["a.b", "x`y"])
    body = (
        '{"after": {"a.b": 12345678901234567890.1234567890, "x`y": "k", "j": "true"}, "op": "c", '
        f'"key": {{"a.b": 12345678901234567890.1234567890, "x`y": "k"}}, "source": {{"ts_hlc": "{AT}"}}, "ts_ns": 1}}'
    )
    lines = [body, f'{{"payload": {body}, "schema": {{}}}}']
    rows = decode(spark, tmp_path / "lines.ndjson", lines, schema).collect()
    assert [(str(row["a.b"]), row["x`y"], row["j"], row["_commit_version"], row["_fault"]) for row in rows] == [
        ("12345678901234567890.1234567890", "k", '"true"', AT, None)
    ] * 2


def test_a_hash_sharded_key_may_carry_its_shard(spark: SparkSession, tmp_path: Path) -> None:
    plain = from_columns({"a": "INT8", "b": "INT8"}, ["a", "b"])
    schema = TableSchema(plain.name, plain.columns, plain.primary_key, shard_at=0)
    lines = [f'{{"after": null, "key": {key}, "updated": "{AT}"}}' for key in ("[7, 1, 2]", "[1, 2]", "[1]")]
    rows = decode(spark, tmp_path / "lines.ndjson", lines, schema).collect()
    assert [(row["a"], row["b"], row["_fault"] and row["_fault"]["code"]) for row in rows] == [
        (1, 2, None),
        (1, 2, None),
        (None, None, "ROW_KEY_ARITY"),
    ]


def test_strays_are_the_lines_that_the_reader_passes_over(spark: SparkSession, tmp_path: Path) -> None:
    good = f'{{"after": null, {TAIL}}}'
    fine = [good, f'{{"after": {{"id": 1, "v": "}} {{", "j": [{{}}, {{}}]}}, {TAIL}}}', "", "  "]
    no_object = ["[]", "null", f"[{good}]", good + good, f"{good} x}}", f"{good}, {good}"]
    no_after = [f"{{{TAIL}}}", "{}", '{"resolved": "1.0000000000"}', '{"key": ["\\"after\\""]}']
    path = tmp_path / "lines.ndjson"
    path.write_text("".join(f"{line}\n" for line in [*fine, *no_object, *no_after]))
    found = [tuple(row["_fault"]) for row in ndjson.strays(spark, [str(path)]).collect()]
    assert found == [("ROW_NOT_JSON", line[:200]) for line in no_object] + [("ROW_NO_AFTER", line) for line in no_after]


def test_a_plain_table_is_parsed_once_and_without_python(spark: SparkSession, tmp_path: Path) -> None:
    for columns, scans in (({"id": "INT8", "v": "STRING"}, 1), ({"id": "INT8", "j": "JSONB"}, 1)):
        rows = decode(spark, tmp_path / "lines.ndjson", list(LINES), from_columns(columns, ["id"]))
        plan = rows._jdf.queryExecution().executedPlan().toString()
        assert plan.count("FileScan json") == scans
        assert plan.count("from_json(") == 1
        assert "Python" not in plan
