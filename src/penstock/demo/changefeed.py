"""A CockroachDB changefeed's files, written as its cloud storage sink writes them: names, directories, lines.

The demo and the tests make their feeds with this; it knows the files, not which events happen or arrive when.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from decimal import Decimal
from itertools import groupby
from typing import TYPE_CHECKING, Literal, NamedTuple
from uuid import UUID

if TYPE_CHECKING:
    from collections.abc import Iterable
    from random import Random

    from penstock.position import Hlc

Layout = Literal["daily", "hourly", "flat"]

_DIRECTORY: Mapping[Layout, str] = {"daily": "%Y-%m-%d/", "hourly": "%Y-%m-%d/%H/", "flat": ""}


class Event(NamedTuple):
    """One version of one row: what the row became at a position, or None where it was deleted."""

    table: str
    key: tuple[object, ...]
    at: Hlc
    row: Mapping[str, object] | None

    def line(self) -> str:
        """Return the event in the wrapped envelope."""
        return to_json({"after": self.row, "key": self.key, "updated": str(self.at)})


@dataclass(frozen=True, slots=True)
class DataFile:
    """One data file; `lower` is the inclusive lower bound of its rows, and all that its name says of them."""

    lower: Hlc
    session: str
    node: int
    sink: int
    fileid: int
    topic: str
    events: tuple[Event, ...]
    layout: Layout = "daily"
    compressed: bool = False
    schema: int = 1

    @property
    def path(self) -> str:
        """The path below the feed's prefix."""
        uniquer = f"{self.session}-{self.node}-{self.sink}-{self.fileid:08x}"
        extension = "ndjson.gz" if self.compressed else "ndjson"
        return (
            f"{_directory(self.lower, self.layout)}{self.lower.name}-{uniquer}-{self.topic}-{self.schema:x}.{extension}"
        )

    @property
    def content(self) -> bytes:
        """The file's bytes, the same each time."""
        text = "".join(f"{event.line()}\n" for event in self.events).encode()
        return gzip.compress(text, mtime=0) if self.compressed else text

    def shuffled(self, random: Random) -> DataFile:
        """Return the file with its rows in another order: inside a file CockroachDB promises none."""
        return replace(self, events=tuple(random.sample(self.events, len(self.events))))


@dataclass(frozen=True, slots=True)
class Resolved:
    """One RESOLVED file: no row at or below `at` will be seen for the first time after it."""

    at: Hlc
    layout: Layout = "daily"

    @property
    def path(self) -> str:
        """The path below the feed's prefix."""
        return f"{_directory(self.at, self.layout)}{self.at.name}.RESOLVED"

    @property
    def content(self) -> bytes:
        """The file's bytes."""
        return f'{{"resolved":"{self.at}"}}'.encode()


class Sink:
    """One node's sink in one session: it counts its files, and names them by how far it had come at its last flush.

    Args:
        session: 16 hex digits, new at every start of the job.
        node: The node's number.
        sink: The number of the sink on its node.
        lower: The first position that it may write.
        layout: The feed's `partition_format`.
        compressed: Whether the feed has `compression='gzip'`.
    """

    def __init__(
        self, session: str, node: int, sink: int, lower: Hlc, *, layout: Layout = "daily", compressed: bool = False
    ) -> None:
        self.session = session
        self.node = node
        self.sink = sink
        self.lower = lower
        self.layout: Layout = layout
        self.compressed = compressed
        self._files = 0

    def write(self, events: Iterable[Event], *, rows_per_file: int | None = None) -> list[DataFile]:
        """Return the files of these events, one or more for each table, named by the lower bound as it stands.

        Events keep their order within a table. No events, no file.

        Raises:
            ValueError: An event is older than the lower bound; CockroachDB never writes such a file.
        """
        files: list[DataFile] = []
        for topic, group in groupby(sorted(events, key=lambda event: event.table), key=lambda event: event.table):
            rows = tuple(group)
            if (oldest := min(event.at for event in rows)) < self.lower:
                raise ValueError(f"an event of {topic} at {oldest} is older than its file's name, {self.lower}")
            step = rows_per_file or len(rows)
            files.extend(self._file(topic, rows[start : start + step]) for start in range(0, len(rows), step))
        return files

    def flushed(self, frontier: Hlc) -> None:
        """Note that everything at or below `frontier` is written: later files are named above it."""
        self.lower = max(self.lower, frontier.next())

    def _file(self, topic: str, rows: tuple[Event, ...]) -> DataFile:
        fileid, self._files = self._files, self._files + 1
        return DataFile(
            self.lower, self.session, self.node, self.sink, fileid, topic, rows, self.layout, self.compressed
        )


def to_json(value: object) -> str:
    """Return a value as CockroachDB's JSON encoder prints it: keys sorted, numbers by their own digits.

    A `Decimal` is a number (NaN and the infinities are strings), a `datetime` without a zone is a TIMESTAMP, with one
    a TIMESTAMPTZ in UTC, `bytes` are BYTES.
    """
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{to_json(name)}: {to_json(value[name])}' for name in sorted(value))}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(to_json, value))}]"
    if isinstance(value, Decimal) and value.is_finite():
        return str(value)
    return json.dumps(_plain(value), ensure_ascii=False)


def _plain(value: object) -> object:
    """Return the text that JSON has in place of a value it has no form for; any other value as it is."""
    if isinstance(value, datetime):
        return _timestamp(value)
    if isinstance(value, bytes):
        return f"\\x{value.hex()}"
    return str(value) if isinstance(value, Decimal | UUID) else value


def _timestamp(value: datetime) -> str:
    zone = "" if value.tzinfo is None else "Z"
    plain = value if value.tzinfo is None else value.astimezone(timezone.utc).replace(tzinfo=None)
    text = plain.isoformat(timespec="microseconds" if plain.microsecond else "seconds")
    return (text.rstrip("0") if plain.microsecond else text) + zone


def _directory(at: Hlc, layout: Layout) -> str:
    return at.instant.strftime(_DIRECTORY[layout])
