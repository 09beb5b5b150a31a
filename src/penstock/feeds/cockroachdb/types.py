"""CockroachDB's types in Spark: what a column becomes in Delta, and how its values get there, exactly.

Two encodings come in: the text of a JSON value, and CockroachDB's Parquet (which stores decimals, times and dates as
text, and UUID and TIME in forms that Spark cannot infer). Both end in the same value. All functions here are lazy and
make Column expressions; none depends on the session's time zone, and no number goes through a double.

A value that Spark cannot hold becomes NULL; `fault` then says why, so that the cell can be set aside.
GEOMETRY and GEOGRAPHY are text as they came: GeoJSON in a JSON feed, EWKB in hexadecimal in a Parquet feed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql import functions as sf
from pyspark.sql import types as st

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Column

    from penstock.feeds.cockroachdb.schema import SqlType

NO_EQUIVALENT = "no Spark equivalent"

_MAX_PRECISION = 38
_INT8 = st.LongType()
_STRING = st.StringType()
_DELTA: dict[str, st.DataType] = {
    "BOOL": st.BooleanType(),
    "BYTES": st.BinaryType(),
    "DATE": st.DateType(),
    "FLOAT4": st.FloatType(),
    "FLOAT8": st.DoubleType(),
    "INT2": st.ShortType(),
    "INT4": st.IntegerType(),
    "INT8": _INT8,
    "OID": _INT8,
    "TIMESTAMP": st.TimestampNTZType(),
    "TIMESTAMPTZ": st.TimestampType(),
}
# Where CockroachDB's Parquet is neither text nor the Delta type itself.
_PARQUET: dict[str, st.DataType] = {
    "BIT": st.BinaryType(),
    "BOOL": st.BooleanType(),
    "BYTES": st.BinaryType(),
    "FLOAT4": st.FloatType(),
    "FLOAT8": st.DoubleType(),
    "GEOGRAPHY": st.BinaryType(),
    "GEOMETRY": st.BinaryType(),
    "INT2": st.IntegerType(),
    "INT4": st.IntegerType(),
    "INT8": _INT8,
    "LTREE": st.BinaryType(),
    "OID": st.IntegerType(),
    "PG_LSN": _INT8,
    "TIME": _INT8,
    "UUID": st.BinaryType(),
    "VARBIT": st.BinaryType(),
}
_DAY = r"(?!0000)\d{4}-\d\d-\d\d"
_CLOCK = r"\d\d:\d\d:\d\d(\.\d{1,6})?"
# A moment, but outside of the years 0001 to 9999 that Spark and Delta's readers agree on.
_FAR_MOMENT = r"^(-?infinity|-?\d{4,}-\d\d-\d\d.*)$"
_NO_NUMBER = ("NaN", "Infinity", "-Infinity")


def delta_type(kind: SqlType) -> st.DataType:
    """Return the type of a target's column."""
    if kind.array:
        return st.ArrayType(delta_type(kind.element))
    if kind.name == "DECIMAL" and kind.precision is not None and kind.precision <= _MAX_PRECISION:
        return st.DecimalType(kind.precision, kind.scale or 0)
    return _DELTA.get(kind.name, _STRING)


def json_type(kind: SqlType) -> st.DataType:
    """Return the type to read a JSON value as: its own text."""
    return st.ArrayType(_STRING) if kind.array else _STRING


def parquet_type(kind: SqlType) -> st.DataType:
    """Return the type to read a Parquet column as; what Spark would infer is wrong or fails for half of them."""
    element = _PARQUET.get(kind.name, _STRING)
    return st.ArrayType(element) if kind.array else element


def from_json(kind: SqlType, value: Column) -> Column:
    """Turn a JSON value's text into the column's Delta type; NULL if it does not fit."""
    return _convert(kind, value, _from_text)


def from_parquet(kind: SqlType, value: Column) -> Column:
    """Turn a value read as `parquet_type` into the column's Delta type; NULL if it does not fit."""
    return _convert(kind, value, _from_parquet)


def always_fits(kind: SqlType, *, parquet: bool = False) -> bool:
    """Say whether no value of this type can be lost, so that nothing needs to be checked."""
    element = parquet_type(kind.element) if parquet else _STRING
    return element == delta_type(kind.element) and kind.name not in ("DECIMAL", "UUID", "TIME")


def fault(kind: SqlType, value: Column) -> Column:
    """Say why a value, not NULL as read, became NULL."""
    misfit = sf.lit(f"does not fit {kind}")
    test = _without_equivalent(kind)
    if test is None:
        return misfit
    lost = sf.exists(value, test) if kind.array else test(value)
    return sf.when(lost, NO_EQUIVALENT).otherwise(misfit)


def text(kind: SqlType, value: Column) -> Column:
    """Return a value as text, as it came where it came as text; an array as a JSON array of its elements' texts."""
    return sf.to_json(value.cast(st.ArrayType(_STRING))) if kind.array else value.cast(_STRING)


def plain_decimal(value: Column) -> Column:
    """Write a decimal's text without exponent, trailing zeros kept: 1E-7 is 0.0000001; anything else as it is."""
    pattern = r"^(-?)(\d+)\.?(\d*)[eE]([+-]?\d+)$"
    sign, whole, fraction, power = (sf.regexp_extract(value, pattern, group) for group in range(1, 5))
    digits = sf.concat(whole, fraction)
    point = sf.length(whole) + power.try_cast("int")
    integer = sf.when(point <= 0, "0").otherwise(sf.rpad(sf.substring(digits, sf.lit(1), point), point, "0"))
    decimals = sf.when(point <= 0, sf.concat(sf.repeat(sf.lit("0"), -point), digits)).otherwise(
        sf.substring(digits, point + 1, sf.length(digits))
    )
    trimmed = sf.regexp_replace(integer, r"^0+(?=\d)", "")
    moved = sf.concat(sign, trimmed, sf.when(decimals == "", "").otherwise(sf.concat(sf.lit("."), decimals)))
    return sf.when(value.rlike(pattern), moved).otherwise(value)


def _bounded(kind: SqlType) -> bool:
    return isinstance(delta_type(kind.element), st.DecimalType)


def _convert(kind: SqlType, value: Column, scalar: Callable[[SqlType, Column], Column]) -> Column:
    """Convert a value, or all elements of an array: one that does not fit takes the whole array with it."""
    if not kind.array:
        return scalar(kind, value)

    def misfit(element: Column) -> Column:
        return element.isNotNull() & scalar(kind.element, element).isNull()

    converted = sf.transform(value, lambda element: scalar(kind.element, element))
    return sf.when(~sf.exists(value, misfit), converted)


def _from_text(kind: SqlType, value: Column) -> Column:
    if kind.name == "BOOL":
        return sf.when(value.isin("true", "false"), value == "true")
    if kind.name == "BYTES":
        return sf.when(
            value.startswith("\\x") & (sf.length(value) % 2 == 0), sf.unhex(sf.substring(value, 3, 2**31 - 1))
        )
    if kind.name == "UUID":
        return sf.when(value.rlike(r"^[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}$"), sf.lower(value))
    if kind.name == "TIME":
        full = sf.when(sf.contains(value, sf.lit(".")), value).otherwise(sf.concat(value, sf.lit(".")))
        return sf.when(value.rlike(f"^{_CLOCK}$"), sf.rpad(full, len("HH:mm:ss.SSSSSS"), "0"))
    return _from_common(kind, value)


def _from_parquet(kind: SqlType, value: Column) -> Column:
    special = _PARQUET_ONLY.get(kind.name)
    return _from_common(kind, value) if special is None else special(value)


def _uuid(value: Column) -> Column:
    digits = sf.lower(sf.hex(value))
    parts = [sf.substring(digits, start, length) for start, length in ((1, 8), (9, 4), (13, 4), (17, 4), (21, 12))]
    return sf.when(sf.length(value) == 16, sf.concat_ws("-", *parts))


def _time(value: Column) -> Column:
    """Write microseconds of a day as `HH:mm:ss.SSSSSS`; 24:00:00 is legal in CockroachDB."""

    def digits(divisor: int, modulus: int, width: int) -> Column:
        whole = sf.call_function("div", value, sf.lit(divisor)) % modulus
        return sf.lpad(whole.cast(_STRING), width, "0")

    clock = sf.concat_ws(":", digits(3_600_000_000, 25, 2), digits(60_000_000, 60, 2), digits(1_000_000, 60, 2))
    return sf.when(value.between(0, 86_400_000_000), sf.concat_ws(".", clock, digits(1, 1_000_000, 6)))


def _lsn(value: Column) -> Column:
    halves = sf.shiftrightunsigned(value, 32), value.bitwiseAND(sf.lit(0xFFFFFFFF))
    return sf.concat_ws("/", *(sf.hex(half) for half in halves))


def _hex(value: Column) -> Column:
    return sf.lower(sf.hex(value))


def _ascii(value: Column) -> Column:
    return value.cast(_STRING)


_PARQUET_ONLY: dict[str, Callable[[Column], Column]] = {
    "BIT": _ascii,
    "GEOGRAPHY": _hex,
    "GEOMETRY": _hex,
    "LTREE": _ascii,
    # Both are unsigned in CockroachDB and squeezed into a signed integer.
    "OID": lambda value: value.cast("bigint").bitwiseAND(sf.lit(0xFFFFFFFF)),
    "PG_LSN": lambda value: sf.when(value.isNotNull(), _lsn(value)),
    "TIME": _time,
    "UUID": _uuid,
    "VARBIT": _ascii,
}


def _from_common(kind: SqlType, value: Column) -> Column:
    """Convert what both encodings write alike: decimals, moments, and all that needs no more than a cast."""
    target = delta_type(kind)
    if kind.name == "DECIMAL":
        plain = plain_decimal(value)
        if not _bounded(kind):
            return sf.when(value.isin(*_NO_NUMBER) | plain.rlike(r"^-?\d+(\.\d+)?$"), plain)
        # A cast rounds: more decimals than the column has must not pass.
        return sf.when(~plain.rlike(rf"\.\d{{{kind.scale}}}\d*[1-9]"), value.try_cast(target))
    if kind.name == "DATE":
        return sf.when(value.rlike(f"^{_DAY}$"), value.try_cast(target))
    if kind.name == "TIMESTAMP":
        return sf.when(value.rlike(f"^{_DAY}[ T]{_CLOCK}$"), value.try_cast(target))
    if kind.name == "TIMESTAMPTZ":
        return sf.when(value.rlike(rf"^{_DAY}[ T]{_CLOCK}(Z|[+-]\d\d(:\d\d)?)$"), value.try_cast(target))
    return value.try_cast(target)


def _without_equivalent(kind: SqlType) -> Callable[[Column], Column] | None:
    if kind.name == "DECIMAL" and _bounded(kind):
        return lambda value: value.isin(*_NO_NUMBER)
    if kind.name in ("DATE", "TIMESTAMP", "TIMESTAMPTZ"):
        return lambda value: value.rlike(_FAR_MOMENT)
    return None
