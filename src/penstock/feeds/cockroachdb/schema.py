"""What decoding needs of a CockroachDB table, as frozen values: columns, primary key, column families."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from penstock.errors import DdlError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Names that Penstock or CockroachDB put beside a table's own columns; compared without case, as Delta does.
RESERVED_NAMES = frozenset(
    {
        "__crdb__before",
        "__crdb__event_type",
        "__crdb__mvcc_timestamp",
        "__crdb__updated",
        "_before",
        "_cdc_operation",
        "_change_type",
        "_commit_timestamp",
        "_commit_version",
        "_fault",
        "_file",
        "_set_aside",
    }
)


@dataclass(frozen=True, slots=True)
class SqlType:
    """A CockroachDB type under its canonical name; `precision` is also the length of CHAR, VARCHAR and BIT.

    >>> str(SqlType("DECIMAL", 10, 2, array=True))
    'DECIMAL(10,2)[]'
    """

    name: str
    precision: int | None = None
    scale: int | None = None
    array: bool = False

    @property
    def element(self) -> SqlType:
        """The type of an array's elements; of any other type, itself."""
        return SqlType(self.name, self.precision, self.scale)

    def __str__(self) -> str:
        numbers = ",".join(str(n) for n in (self.precision, self.scale) if n is not None)
        return f"{self.name}{f'({numbers})' if numbers else ''}{'[]' if self.array else ''}"


@dataclass(frozen=True, slots=True)
class Column:
    """A column; a virtual one is computed on read and never part of a feed's rows."""

    name: str
    type: SqlType
    nullable: bool = True
    virtual: bool = False


@dataclass(frozen=True, slots=True)
class Family:
    """A column family; its columns are in a file of its own when the feed splits families."""

    name: str
    columns: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class TableSchema:
    """A table as a feed's rows see it.

    Attributes:
        name: The name as written, without database and schema.
        columns: In the order of the definition, virtual ones included.
        primary_key: Column names in key order: the order of the `key` array.
        families: In the order of their ids; the first decides whether a row exists. Empty when none is declared.
        shard_at: Where a hash-sharded key carries its shard, which is not a part of `primary_key`; None without.
    """

    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    families: tuple[Family, ...] = ()
    shard_at: int | None = None

    @property
    def stored(self) -> tuple[Column, ...]:
        """The columns that a feed's rows carry."""
        return tuple(column for column in self.columns if not column.virtual)

    def column(self, name: str) -> Column:
        """Return the column of that name.

        Raises:
            KeyError: There is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise KeyError(name)


def table_schema(
    name: str,
    columns: Sequence[Column],
    primary_key: Sequence[str],
    *,
    families: Mapping[str, Sequence[str]] | None = None,
    region: str | None = None,
    sharded: bool = False,
) -> TableSchema:
    """Check a table's parts against each other and put them together.

    Args:
        name: The table's name.
        columns: In the order of the definition.
        primary_key: As declared; empty means CockroachDB's hidden `rowid`.
        families: Name to columns, in the order of their ids.
        region: The column that leads the key of a REGIONAL BY ROW table without being declared in it.
        sharded: The key is declared USING HASH.

    Raises:
        DdlError: A name is reserved, there twice, or not a column.
    """
    names = [column.name for column in columns]
    _check_names(names)
    columns, declared = list(columns), list(primary_key)
    if not declared:
        # CockroachDB's own rule for tables without a key, a taken name included.
        hidden = next(n for n in ("rowid", *(f"rowid_{i}" for i in range(1, len(names) + 1))) if n not in names)
        columns.append(Column(hidden, SqlType("INT8"), nullable=False))
        declared = [hidden]
    key = declared if region is None or region in declared else [region, *declared]
    stored = [column.name for column in columns if not column.virtual]
    _check_known(key, stored, "The primary key")
    for column in columns:
        if column.name in key and (column.type.array or column.type.name == "JSONB"):
            raise DdlError(f"Key column {column.name!r} is {column.type}, which Penstock cannot use as a key.")
    for family, members in (families or {}).items():
        _check_known(members, [column.name for column in columns], f"Family {family!r}")
    return TableSchema(
        name=name,
        columns=tuple(replace(c, nullable=c.nullable and c.name not in key) for c in columns),
        primary_key=tuple(key),
        families=_families(families or {}, stored),
        shard_at=len(key) - len(declared) if sharded else None,
    )


def _families(families: Mapping[str, Sequence[str]], stored: Sequence[str]) -> tuple[Family, ...]:
    """Freeze the families; a stored column that none of them names lives in the first one, as in CockroachDB."""
    placed = {member for members in families.values() for member in members}
    frozen = [Family(name, tuple(members)) for name, members in families.items()]
    if frozen:
        frozen[0] = Family(frozen[0].name, (*frozen[0].columns, *(name for name in stored if name not in placed)))
    return tuple(frozen)


def _check_names(names: Sequence[str]) -> None:
    seen: dict[str, str] = {}
    for name in names:
        other = seen.get(name.lower())
        seen[name.lower()] = name
        if name.lower() in RESERVED_NAMES:
            raise DdlError(
                f"Column {name!r} has a name that Penstock needs for itself.",
                hint="Rename the column in CockroachDB: ALTER TABLE ... RENAME COLUMN.",
            )
        if other == name:
            raise DdlError(f"Column {name!r} is there twice.", hint="Remove one of the two.")
        if other is not None:
            raise DdlError(
                f"Columns {other!r} and {name!r} differ only in case, which Delta cannot tell apart.",
                hint="Rename one of them in CockroachDB: ALTER TABLE ... RENAME COLUMN.",
            )


def _check_known(names: Sequence[str], columns: Sequence[str], what: str) -> None:
    missing = [name for name in names if name not in columns]
    if missing or len(set(names)) != len(names):
        problem = f"has {missing[0]!r}, which is not a stored column" if missing else "has a column twice"
        raise DdlError(f"{what} {problem}.", hint=f"The columns are: {', '.join(columns)}.")
