"""From raw cells to the changes contract: what NDJSON and Parquet files have in common once they are read.

Every row that was read yields a row. One that cannot be used says why in `_fault`; a cell that Spark cannot hold is
NULL and described in `_set_aside`. Nothing here runs an action.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, NamedTuple

from pyspark.sql import functions as sf
from pyspark.sql import types as st

from penstock.feeds.cockroachdb import types
from penstock.position import Hlc

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyspark.sql import Column as SparkColumn
    from pyspark.sql import DataFrame

    from penstock.feeds.cockroachdb.schema import Column, Family, SqlType, TableSchema


class Fault(NamedTuple):
    """What a fault code means, and what to change so that it goes away."""

    meaning: str
    remedy: str


_ASK_UPDATED = "CREATE CHANGEFEED ... WITH updated, resolved"
_NEW_DDL = "Give the table's present SHOW CREATE TABLE; after ALTER PRIMARY KEY load the table anew from a new feed."
_COPY_AGAIN = "Copy the file again from where CockroachDB wrote it; it is not as CockroachDB writes."

#: Every code of `_fault`.
FAULTS = {
    "ROW_AFTER": Fault("`after` is neither an object nor null", _COPY_AGAIN),
    "ROW_BARE": Fault(
        "the row is in the bare envelope, which cannot express deletes",
        "Create the feed without a query and with envelope=wrapped: CREATE CHANGEFEED FOR TABLE ... INTO ...",
    ),
    "ROW_EVENT_TYPE": Fault("`__crdb__event_type` is none of c, u, d", _COPY_AGAIN),
    "ROW_KEY_ARITY": Fault("`key` has another number of values than the primary key has columns", _NEW_DDL),
    "ROW_KEY_NULL": Fault("a column of the primary key has no value", _NEW_DDL),
    "ROW_KEY_VALUE": Fault("a value of the primary key does not fit its column's type", _NEW_DDL),
    "ROW_NOT_JSON": Fault("the line is not one JSON object", _COPY_AGAIN),
    "ROW_NO_AFTER": Fault(
        "the row has no `after`, so an upsert cannot be told from a delete",
        "Create the feed with envelope=wrapped or envelope=enriched.",
    ),
    "ROW_NO_KEY": Fault(
        "the row has no `key`",
        "Create the feed without a query (CREATE CHANGEFEED FOR TABLE ...): a feed of a SELECT carries no key.",
    ),
    "ROW_NO_TS_HLC": Fault(
        "the enriched row has no `source.ts_hlc`, so its order is unknown",
        f"{_ASK_UPDATED}, enriched_properties='source'.",
    ),
    "ROW_NO_UPDATED": Fault("the row has no `updated`, so its order is unknown", f"{_ASK_UPDATED}."),
    "ROW_VALUE": Fault("a value is not an array where its column is one, or not JSON", _NEW_DDL),
    "ROW_UPDATED": Fault("`updated` is not an HLC such as 1770067697320026017.0000000002", _COPY_AGAIN),
}

_HLC = r"^\d{1,19}\.\d{10}\??$"
_CUT = 200


def columns_of(schema: TableSchema, family: Family | None = None) -> tuple[Column, ...]:
    """Return the columns that a file's rows decode to: all stored ones, or the key's and the family's."""
    if family is None:
        return schema.stored
    wanted = {*schema.primary_key, *family.columns}
    return tuple(column for column in schema.stored if column.name in wanted)


def raw(at: int) -> str:
    """Name the working column of a raw cell; a table's own names would clash with ours."""
    return f"_raw_{at}"


def finish(
    rows: DataFrame,
    schema: TableSchema,
    columns: Sequence[Column],
    *,
    convert: Callable[[SqlType, SparkColumn], SparkColumn],
    always_fits: Callable[[SqlType], bool],
    carried: Sequence[str] = (),
    snapshot: bool = False,
) -> DataFrame:
    """Turn raw cells into typed rows of the changes contract.

    Args:
        rows: `raw(i)` for each of `columns`, `_updated`, `_deleted`, `_code` (a fault seen so far, or NULL), `_line`,
            `_file`, and what is `carried`.
        schema: The table.
        columns: The columns to decode, in the order of the output.
        convert: From type and raw cell to the typed value; NULL if it does not fit.
        always_fits: Whether a type's values need no check.
        carried: Further columns of `rows` to keep, at the end.
        snapshot: Rows need no `_updated`.
    """
    checked = [i for i, column in enumerate(columns) if not always_fits(column.type)]
    keys = [i for i, column in enumerate(columns) if column.name in schema.primary_key]
    typed = rows.select(
        *(sf.col(raw(i)) for i in range(len(columns))),
        *(convert(column.type, sf.col(raw(i))).alias(_typed(i)) for i, column in enumerate(columns)),
        "_updated",
        "_deleted",
        "_code",
        "_line",
        "_file",
        *carried,
    )
    good = sf.col("_code").isNull()
    position = sf.lpad(_hlc_text(), Hlc.WIDTH, "0")
    judged = typed.withColumn(
        "_code", sf.coalesce(sf.col("_code"), _hlc_fault(snapshot=snapshot), _key_fault(keys))
    ).withColumn("_position", sf.when(good, position))
    return judged.select(
        *(sf.when(good, sf.col(_typed(i))).alias(column.name) for i, column in enumerate(columns)),
        sf.when(good, _hlc_text()).alias("__crdb__updated"),
        sf.when(good, sf.when(sf.col("_deleted"), "DELETE").otherwise("UPSERT")).alias("_cdc_operation"),
        sf.when(good, sf.when(sf.col("_deleted"), "delete").otherwise("insert")).alias("_change_type"),
        sf.col("_position").alias("_commit_version"),
        _instant(sf.col("_position")).alias("_commit_timestamp"),
        sf.col("_file"),
        sf.when(~good, fault(sf.col("_code"), sf.col("_line"))).alias("_fault"),
        _set_aside(columns, [i for i in checked if i not in keys], good).alias("_set_aside"),
        *(sf.when(good, sf.col(name)).alias(name) for name in carried),
    )


def fault(code: SparkColumn | str, line: SparkColumn) -> SparkColumn:
    """Return a `_fault`: the code, and the line cut to a length that fits a message."""
    code = sf.lit(code) if isinstance(code, str) else code
    return sf.struct(code.alias("code"), sf.substring(line, 1, _CUT).alias("text"))


def file_path() -> SparkColumn:
    """Return the path of a row's file as it was given; Spark has it with percent signs for spaces and the like."""
    # url_decode takes `+` for a space, which a path does not mean.
    return sf.url_decode(sf.replace(sf.col("_metadata.file_path"), sf.lit("+"), sf.lit("%2B")))


def _typed(at: int) -> str:
    return f"_typed_{at}"


def _lost(at: int) -> SparkColumn:
    return sf.col(raw(at)).isNotNull() & sf.col(_typed(at)).isNull()


def _hlc_text() -> SparkColumn:
    """Return `updated` without the `?` of versions before 23.2: with and without it is the same position."""
    return sf.rtrim(sf.col("_updated"), sf.lit("?"))


def _hlc_fault(*, snapshot: bool) -> SparkColumn:
    """Compare as text of one width: both parts are digits only by then."""
    updated = sf.col("_updated")
    padded = sf.lpad(_hlc_text(), Hlc.WIDTH, "0")
    fits = (sf.substring(padded, 1, 19) <= str(Hlc.MAX_WALL)) & (sf.substring(padded, 21, 10) <= str(Hlc.MAX_LOGICAL))
    missing = sf.lit(None if snapshot else "ROW_NO_UPDATED").cast("string")
    return sf.when(updated.isNull(), missing).when(~(updated.rlike(_HLC) & fits), "ROW_UPDATED")


def _key_fault(keys: Sequence[int]) -> SparkColumn:
    missing = reduce(or_, (sf.col(raw(i)).isNull() for i in keys))
    misfit = reduce(or_, (sf.col(_typed(i)).isNull() for i in keys))
    return sf.when(missing, "ROW_KEY_NULL").when(misfit, "ROW_KEY_VALUE")


def _instant(position: SparkColumn) -> SparkColumn:
    micros = sf.call_function("div", sf.substring(position, 1, 19).cast("bigint"), sf.lit(1000))
    return sf.timestamp_micros(micros)


def _set_aside(columns: Sequence[Column], checked: Sequence[int], good: SparkColumn) -> SparkColumn:
    """Describe the cells that were lost; NULL when there are none, which is decided before anything is built."""
    cell = st.StructType([st.StructField(name, st.StringType()) for name in ("column", "text", "reason")])
    if not checked:
        return sf.lit(None).cast(st.ArrayType(cell))
    cells = [
        sf.when(
            _lost(i),
            sf.struct(
                sf.lit(columns[i].name).alias("column"),
                types.text(columns[i].type, sf.col(raw(i))).alias("text"),
                types.fault(columns[i].type, sf.col(raw(i))).alias("reason"),
            ),
        )
        for i in checked
    ]
    return sf.when(good & reduce(or_, (_lost(i) for i in checked)), sf.array_compact(sf.array(*cells)))
