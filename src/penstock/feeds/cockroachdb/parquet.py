"""Parquet files of a changefeed.

What Spark infers from CockroachDB's Parquet is wrong or fails for half of the types (decimals are ASCII text under a
decimal's name, UUID and TIME have no inferred type), so the files are read as `read_schema` says and nothing else.
`uuid[]` and `time[]` can be read only by Spark's vectorised reader with nested columns, which is the default.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.feeds.cockroachdb import rows, types

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import DataFrame, SparkSession

    from penstock.feeds.cockroachdb.schema import Family, SqlType, TableSchema

EVENT_TYPE = "__crdb__event_type"
UPDATED = "__crdb__updated"
BEFORE = "__crdb__before"


def read_schema(schema: TableSchema, family: Family | None = None, *, before: bool = False) -> st.StructType:
    """Return what to read a table's files as. Columns that a file does not have, as of an older schema, are NULL."""
    fields = [
        st.StructField(column.name, types.parquet_type(column.type)) for column in rows.columns_of(schema, family)
    ]
    extra = [EVENT_TYPE, UPDATED, *([BEFORE] if before else [])]
    return st.StructType([*fields, *(st.StructField(name, st.StringType()) for name in extra)])


def read(
    spark: SparkSession,
    paths: Sequence[str],
    schema: TableSchema,
    *,
    family: Family | None = None,
    before: bool = False,
) -> DataFrame:
    """Read a table's files, always by an explicit list of paths: a RESOLVED file beside them would add an empty row.

    Returns:
        One lazy row per event in the types of `read_schema`, and `_file`, its path.
    """
    events = spark.read.schema(read_schema(schema, family, before=before)).option("mergeSchema", "false")
    return events.parquet(*paths).select("*", rows.file_path().alias("_file"))


def decode(
    events: DataFrame,
    schema: TableSchema,
    *,
    family: Family | None = None,
    before: bool = False,
    snapshot: bool = False,
) -> DataFrame:
    """Turn what `read` gave into the rows that `ndjson.decode` would give for the same events; lazy.

    Args:
        events: From `read`, with the same `family` and `before`.
        schema: The table.
        family: The family whose files these are; the output then has the key's and the family's columns only.
        before: Add `_before`, the JSON text of the row before the change; NULL if there was none. Needs `diff`.
        snapshot: The files are an export (initial_scan='only'): rows without `updated` are good, at no position.
    """
    columns = rows.columns_of(schema, family)
    event_type = sf.col(EVENT_TYPE)
    raw = events.select(
        *(events[_quoted(column.name)].alias(rows.raw(i)) for i, column in enumerate(columns)),
        sf.col(UPDATED).alias("_updated"),
        (event_type == "d").alias("_deleted"),
        sf.when(event_type.isNull() | ~event_type.isin("c", "u", "d"), "ROW_EVENT_TYPE").alias("_code"),
        sf.to_json(sf.struct(*(events[_quoted(name)] for name in (*schema.primary_key, EVENT_TYPE, UPDATED)))).alias(
            "_line"
        ),
        "_file",
        *([sf.col(BEFORE).alias("_before")] if before else []),
    )
    return rows.finish(
        raw,
        schema,
        columns,
        convert=types.from_parquet,
        always_fits=_always_fits,
        carried=["_before"] if before else [],
        snapshot=snapshot,
    )


def transform(events: DataFrame) -> DataFrame:
    """Add `_cdc_operation` (UPSERT or DELETE), drop `__crdb__event_type`, keep everything else as it came; lazy."""
    event_type = sf.col(EVENT_TYPE)
    operation = sf.when(event_type == "d", "DELETE").when(event_type.isin("c", "u"), "UPSERT")
    return events.withColumn("_cdc_operation", operation).drop(EVENT_TYPE)


def _always_fits(kind: SqlType) -> bool:
    return types.always_fits(kind, parquet=True)


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
