"""A load and what it reads: plain values and pure decisions, without Spark."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from penstock.position import Hlc


@dataclass(frozen=True, slots=True)
class FeedFile:
    """A data file of a feed's table. `lower` is an inclusive lower bound of its rows' positions."""

    table: str
    path: str
    size: int
    lower: Hlc


@dataclass(frozen=True, slots=True)
class TableCut:
    """Where one table stands: its position, and the version and id of its target (None while there is none)."""

    table: str
    position: Hlc
    target: str
    table_id: str | None = None
    version: int | None = None


@dataclass(frozen=True, slots=True)
class Load:
    """One attempt to move a feed's tables from `starts` (exclusive; None: the beginning) to `end`, over these files."""

    number: int
    run: str
    end: Hlc
    starts: Mapping[str, Hlc | None]
    files: tuple[FeedFile, ...]
    resumed: bool = False


@dataclass(frozen=True, slots=True)
class FeedState:
    """What the ledger knows of a feed: its last load, the cut and held files it left, the load not yet consumed."""

    number: int = 0
    cut: Mapping[str, TableCut] = field(default_factory=dict)
    held: tuple[FeedFile, ...] = ()
    unfinished: Load | None = None
    closed_at: float | None = None

    @property
    def position(self) -> Hlc | None:
        """The position that every table has reached; None before the first load."""
        return min((one.position for one in self.cut.values()), default=None)

    def starts(self, tables: Iterable[str], first: Hlc | None = None) -> dict[str, Hlc | None]:
        """Return where each table stands; `first` is for those that never had a load."""
        return {table: self.cut[table].position if table in self.cut else first for table in tables}


@dataclass(frozen=True, slots=True)
class Selection:
    """The listed files, sorted by what a load to `end` does with them."""

    new: tuple[FeedFile, ...]
    held: tuple[FeedFile, ...]
    above: tuple[FeedFile, ...]
    consumed: int

    @property
    def candidates(self) -> tuple[FeedFile, ...]:
        """The files to read."""
        return (*self.new, *self.held)


def select(
    listed: Iterable[FeedFile],
    *,
    consumed: Mapping[str, int],
    held: Iterable[FeedFile],
    end: Hlc,
    tables: Iterable[str],
) -> Selection:
    """Decide which files a load to `end` reads: every one that is not known as fully consumed.

    A file named above `end` holds no row of the interval, since a name is a lower bound. A consumed file whose size is
    another than it was is read again. Held files are read whether or not the listing went back far enough to see them.

    Args:
        listed: The files found.
        consumed: Path and size of the files that the ledger knows as read to their end.
        held: The files that were read and still have rows to come.
        end: Where the load goes.
        tables: The tables that take part.
    """
    taking = set(tables)
    waiting = {file.path: file for file in held if file.table in taking}
    new: list[FeedFile] = []
    above: list[FeedFile] = []
    known = 0
    for file in listed:
        if file.table not in taking or file.path in waiting:
            continue
        if consumed.get(file.path) == file.size:
            known += 1
        elif file.lower > end:
            above.append(file)
        else:
            new.append(file)

    def by_path(file: FeedFile) -> str:
        return file.path

    return Selection(
        tuple(sorted(new, key=by_path)),
        tuple(sorted(waiting.values(), key=by_path)),
        tuple(sorted(above, key=by_path)),
        known,
    )
