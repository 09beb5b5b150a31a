"""NDJSON files of a changefeed: wrapped and enriched envelopes.

Spark's JSON *file reader* is the only exact one: asked for STRING, it keeps the text of numbers and embedded JSON as
it stands in the file, while `from_json` sends numbers through a double (`1.50` becomes `1.5`). So a file is read
once, by the reader, with every value as text. Two things that one reading cannot tell are parsed again from the line,
which the reader keeps for records that do not match the schema (`_line`):

* the key of an enriched row, an object where a wrapped row has an array;
* whether a JSONB value is the string "true" or the literal true. For tables with such columns `updated` is read as
  BOOLEAN: no record matches, and every line is kept.

The reader skips blank lines and `[]`, ignores what follows a complete object on its line, and does not tell an absent
`after` from null; `strays` finds those lines.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.feeds.cockroachdb import rows, types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame, SparkSession

    from penstock.feeds.cockroachdb.schema import Column, Family, TableSchema

_LINE = "_line"
_TEXT = st.StringType()
# Where one object may end and another thing follow: rare inside a good line, and then it is parsed to be sure.
_MAY_FOLLOW = r'\}\s*([^,\}\]\s]|,\s*[^"\s])'
_JSON_NULL = r'^\{\s*"__crdb_json_null__"\s*:\s*true\s*\}$'


def read_schema(schema: TableSchema, family: Family | None = None, *, before: bool = False) -> st.StructType:
    """Return what to read a table's files as; `decode` understands no other."""
    columns = rows.columns_of(schema, family)
    cells = [st.StructField(column.name, types.json_type(column.type)) for column in columns]
    after = st.StructField("after", st.StructType(cells))
    # An enriched key is an object: it never matches, so that the line is kept.
    key = st.StructField("key", st.ArrayType(_TEXT))
    members = [after, key, st.StructField("op", _TEXT), st.StructField("source", _struct(ts_hlc=_TEXT))]
    if before:
        members.append(st.StructField("before", _TEXT))
    return st.StructType(
        [
            *members,
            st.StructField("payload", st.StructType(members)),
            st.StructField("updated", st.BooleanType() if _documents(columns) else _TEXT),
            st.StructField("__crdb__", _TEXT),
            st.StructField(_LINE, _TEXT),
        ]
    )


def read(
    spark: SparkSession,
    paths: Sequence[str],
    schema: TableSchema,
    *,
    family: Family | None = None,
    before: bool = False,
) -> DataFrame:
    """Read a table's files, always by an explicit list of paths: a directory also holds RESOLVED files.

    Returns:
        One lazy row per line in the types of `read_schema`, and `_file`, the line's path.
    """
    reader = spark.read.schema(read_schema(schema, family, before=before))
    lines = reader.option("columnNameOfCorruptRecord", _LINE).option("mode", "PERMISSIVE").json(list(paths))
    return lines.select("*", rows.file_path().alias("_file"))


def decode(
    lines: DataFrame,
    schema: TableSchema,
    *,
    family: Family | None = None,
    before: bool = False,
    snapshot: bool = False,
) -> DataFrame:
    """Turn what `read` gave into rows of the changes contract; lazy, one row per row.

    Args:
        lines: From `read`, with the same `family` and `before`.
        schema: The table.
        family: The family whose files these are; the output then has the key's and the family's columns only.
        before: Add `_before`, the JSON text of the row before the change; NULL if there was none. Needs `diff`.
        snapshot: The files are an export (initial_scan='only'): rows without `updated` are good, at no position.

    Returns:
        The table's columns, then `__crdb__updated`, `_cdc_operation`, `_change_type`, `_commit_version` (HLC text of
        one width, so that text order is commit order), `_commit_timestamp`, `_file`, `_fault` and `_set_aside`.
        A row with a `_fault` has NULL in all others but `_file`.
    """
    columns = rows.columns_of(schema, family)
    documents = _documents(columns)
    # Reading `updated` here keeps the decoy in the scan: without it no line would be kept.
    line = sf.when(sf.col("updated").isNull(), sf.col(_LINE)) if documents else sf.col(_LINE)
    again = sf.from_json(sf.concat(sf.lit('{"r":'), line, sf.lit("}")), _again_schema(schema, columns)).getField("r")
    parsed = lines.select(
        _member("after").alias("_after"),
        *([_member("before").alias("_before")] if before else []),
        _member("op").alias("_op"),
        _member("source").getField("ts_hlc").alias("_ts_hlc"),
        sf.col("key").alias("_key"),
        sf.col("updated").alias("_updated"),
        sf.col("__crdb__").alias("_bare"),
        line.alias(_LINE),
        sf.when(line.isNotNull(), again).alias("_again"),
        "_file",
    )
    enriched = sf.col("_op").isNotNull() | sf.col("_ts_hlc").isNotNull()
    updated = _again("updated") if documents else sf.col("_updated")
    raw = parsed.select(
        *(_cell(schema, column, enriched).alias(rows.raw(i)) for i, column in enumerate(columns)),
        sf.when(enriched, sf.col("_ts_hlc")).otherwise(updated).alias("_updated"),
        sf.when(enriched, sf.col("_op") == "d").otherwise(sf.col("_after").isNull()).alias("_deleted"),
        _code(schema, columns, enriched).alias("_code"),
        sf.coalesce(_LINE, sf.to_json(sf.struct("_key", "_updated", "_after"))).alias(_LINE),
        "_file",
        *(["_before"] if before else []),
    )
    carried = ["_before"] if before else []
    return rows.finish(
        raw,
        schema,
        columns,
        convert=types.from_json,
        always_fits=types.always_fits,
        carried=carried,
        snapshot=snapshot,
    )


def strays(spark: SparkSession, paths: Sequence[str]) -> DataFrame:
    """Find what the reader passes over in silence: lines that are not exactly one JSON object with `after`. Lazy.

    Lines are judged by their ends and by the member's name, which cannot stand inside a JSON string; only those in
    which something may follow an object are parsed.

    Returns:
        `_file` and `_fault` of each such line; blank lines are not among them.
    """
    lines = spark.read.text(list(paths)).select(sf.trim("value").alias("value"), rows.file_path().alias("_file"))
    value = sf.col("value")
    whole = sf.from_json(sf.concat(sf.lit('{"r":'), value, sf.lit("}")), "r STRUCT<updated: STRING>").getField("r")
    ends = value.startswith("{") & value.endswith("}")
    stray = ~ends | (value.rlike(_MAY_FOLLOW) & whole.isNull())
    code = sf.when(stray, "ROW_NOT_JSON").when(~value.contains('"after"'), "ROW_NO_AFTER")
    return lines.where((value != "") & code.isNotNull()).select("_file", rows.fault(code, value).alias("_fault"))


def _member(name: str) -> SparkColumn:
    """Take a member of the row, or of its `payload`, where enriched_properties=schema puts everything."""
    payload = sf.col("payload")
    return sf.when(payload.isNotNull(), payload.getField(name)).otherwise(sf.col(name))


def _again(*path: str) -> SparkColumn:
    value = sf.col("_again")
    for name in path:
        value = value.getField(name)
    return value


def _again_after(column: Column) -> SparkColumn:
    return sf.coalesce(_again("after", column.name), _again("payload", "after", column.name))


def _cell(schema: TableSchema, column: Column, enriched: SparkColumn) -> SparkColumn:
    """Take a cell's text: key columns from the key, which deletes have too, all others from `after`."""
    if column.name not in schema.primary_key:
        return _value(column)
    at = schema.primary_key.index(column.name)
    key = sf.col("_key")
    in_array = sf.get(key, sf.lit(at))
    if schema.shard_at is not None and at >= schema.shard_at:
        in_array = sf.when(sf.size(key) > len(schema.primary_key), sf.get(key, sf.lit(at + 1))).otherwise(in_array)
    in_object = sf.coalesce(_again("key", column.name), _again("payload", "key", column.name)).cast(_TEXT)
    return sf.when(enriched, in_object).otherwise(in_array)


def _value(column: Column) -> SparkColumn:
    """Take a value from `after`; a JSONB value as JSON text, its strings quoted again."""
    text = sf.col("_after").getField(column.name)
    if column.type.name != "JSONB":
        return text
    variant = _again_after(column)
    string = sf.schema_of_variant(variant) == "STRING"
    return sf.when(string, sf.to_json(variant)).when(text.rlike(_JSON_NULL), "null").otherwise(text)


def _code(schema: TableSchema, columns: Sequence[Column], enriched: SparkColumn) -> SparkColumn:
    """Return the first fault of the envelope, or NULL; a line that was not kept matched the schema."""
    after, key, line = sf.col("_after"), sf.col("_key"), sf.col(_LINE)
    document = sf.try_parse_json(line)
    kept_after = sf.coalesce(
        *(sf.try_variant_get(document, path, "variant") for path in ("$.payload.after", "$.after"))
    )
    # Of lines that the reader did not keep, `strays` says whether `after` is absent.
    kept_null = after.isNull() & line.isNotNull()
    no_object = _again("key").isNull() & _again("payload", "key").isNull()
    arity = [len(schema.primary_key), len(schema.primary_key) + (schema.shard_at is not None)]
    code = (
        sf.when(line.isNotNull() & sf.col("_again").isNull(), "ROW_NOT_JSON")
        .when(sf.col("_bare").isNotNull(), "ROW_BARE")
        .when(kept_null & kept_after.isNull(), "ROW_NO_AFTER")
        .when(kept_null & ~sf.is_variant_null(kept_after), "ROW_AFTER")
        .when(enriched & after.isNull() & (sf.coalesce("_op", sf.lit("")) != "d"), "ROW_AFTER")
        .when(sf.when(enriched, no_object).otherwise(key.isNull()), "ROW_NO_KEY")
        .when(~enriched & ~sf.size(key).isin(*arity), "ROW_KEY_ARITY")
        .when(enriched & sf.col("_ts_hlc").isNull(), "ROW_NO_TS_HLC")
    )
    for column in columns:
        if column.type.array or column.type.name == "JSONB":
            read = after.getField(column.name)
            kept = _again_after(column)
            lost = read.isNull() & kept.isNotNull() if column.type.array else read.isNotNull() & kept.isNull()
            code = code.when(line.isNotNull() & lost, "ROW_VALUE")
    return code


def _documents(columns: Sequence[Column]) -> bool:
    return any(column.type.name == "JSONB" for column in columns)


def _again_schema(schema: TableSchema, columns: Sequence[Column]) -> st.StructType:
    """Return what a kept line is parsed as: what the reader could not read as it is."""
    key = st.StructType([st.StructField(name, _key_type(schema.column(name))) for name in schema.primary_key])
    fields = [
        st.StructField(column.name, st.VariantType() if column.type.name == "JSONB" else _TEXT)
        for column in columns
        if column.type.array or column.type.name == "JSONB"
    ]
    members = _struct(key=key, after=st.StructType(fields))
    return _struct(r=st.StructType([*members, st.StructField("updated", _TEXT), st.StructField("payload", members)]))


def _key_type(column: Column) -> st.DataType:
    """Read a key's number as a decimal where it is one: as text, `from_json` would send it through a double."""
    kind = types.delta_type(column.type)
    return kind if isinstance(kind, st.DecimalType) else _TEXT


def _struct(**fields: st.DataType) -> st.StructType:
    return st.StructType([st.StructField(name, kind) for name, kind in fields.items()])
