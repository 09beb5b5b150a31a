"""Order: one winner per key by a total order, in one shuffle, and never "whichever came first in the partition"."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as F

from penstock.errors import OrderTieError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyspark.sql import Column, DataFrame

_TIE = "penstock: tie at key "


def column(name: str) -> Column:
    """Return the column of exactly this name, whatever characters are in it."""
    return F.col(quoted(name))


def quoted(name: str) -> str:
    """Return a name as an identifier for Spark: `a.b` is one column, not a field of a struct."""
    return "`" + name.replace("`", "``") + "`"


def newest(changes: DataFrame, *, key: Sequence[str], order: Sequence[str], beside: Sequence[str] = ()) -> DataFrame:
    """Return the row of each key that is last in `order`; lazy, one exchange.

    Equal rows at the same place in the order are duplicates and collapse. Different ones make the query fail with the
    key in the message when it runs (`tie_error` finds it again): no rule says which of them is newer.

    Args:
        changes: Rows; keys and order columns must not be NULL.
        key: The columns that identify a row.
        order: The columns that order the rows of one key, most significant first; all ascending.
        beside: Columns that say where a row came from and do not make two rows different.
    """
    rest = [name for name in changes.columns if name not in (*key, *order)]
    told = [column(name) for name in rest if name not in beside]
    content = F.xxhash64(*told) if told else F.lit(0).cast("long")
    places = [column(name) for name in order]
    winner = F.struct(*places, content.alias("_content"), *[column(name) for name in rest])
    # The same order with the content's bits turned finds the least content at the last place: unequal ones are a tie.
    rival = F.struct(*places, F.bitwise_not(content).alias("_content"))
    reduced = changes.groupBy(*[column(name) for name in key]).agg(F.max(winner).alias("_w"), F.max(rival).alias("_r"))
    tied = F.col("_w")["_content"] != F.bitwise_not(F.col("_r")["_content"])
    message = F.concat(F.lit(_TIE), F.to_json(F.array(*[column(name).cast("string") for name in key])))
    # In a filter it is evaluated for every row, whichever columns the query goes on with.
    settled = reduced.where(F.when(tied, F.raise_error(message).cast("boolean")).otherwise(F.lit(True)))
    return settled.select(
        *[column(name) if name in key else F.col("_w").getField(name).alias(name) for name in changes.columns]
    )


def tie_error(error: Exception) -> OrderTieError | None:
    """Return the tie that made a query over `newest` fail, or None if it failed for another reason."""
    _, found, rest = str(error).partition(_TIE)
    if not found:
        return None
    return OrderTieError(
        "Two different rows of one key have the same position: no rule says which is newer.",
        key=rest.split("]", 1)[0] + "]",
        hint="The prefix may hold the files of two feeds, or a file was edited.",
    )
