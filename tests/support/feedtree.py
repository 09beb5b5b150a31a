"""A small changefeed tree with its penstock.yml, for tests that need a feed and not a story."""

from __future__ import annotations

from typing import TYPE_CHECKING

import yaml
from deltalake import DeltaTable as RustTable

from penstock.demo.changefeed import DataFile, Event, Resolved
from penstock.position import Hlc

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SCHEMA = "CREATE TABLE public.t (\n\tid INT8 NOT NULL,\n\tv STRING NULL,\n\tCONSTRAINT t_pkey PRIMARY KEY (id ASC)\n)"
DATED = SCHEMA.replace("v STRING NULL", "v STRING NULL,\n\td DATE NULL")
BASE = 1_770_067_700
#: A row: key, value (None deletes), seconds after BASE.
Row = tuple[int, "str | None", float]


class FeedTree:
    """Tables of `id INT8, v STRING` (and `d DATE`); seconds are counted from BASE."""

    def __init__(self, place: Path, tables: dict[str, str]) -> None:
        self.place = place
        self.feed = place / "feed"
        self.config = place / "penstock.yml"
        self._files = 0
        self.feed.mkdir()
        for name, ddl in tables.items():
            (place / f"{name}.sql").write_text(ddl)
        configured = {name: {"ddl": f"{name}.sql"} for name in tables}
        feeds = {"crdb": {"kind": "cockroachdb", "path": "feed", "tables": configured}}
        self.config.write_text(yaml.safe_dump({"name": "test", "destination": {"path": "lake"}, "feeds": feeds}))

    def write(self, table: str, rows: Iterable[Row], *, named: float | None = None) -> Path:
        """Add a data file, named at its oldest row unless told otherwise."""
        rows = list(rows)
        lower = hlc(min(at for _, _, at in rows) if named is None else named)
        events = [Event(table, (key,), hlc(at), None if v is None else {"id": key, "v": v}) for key, v, at in rows]
        return self._add(self._file(table, lower, tuple(events)))

    def write_lines(self, table: str, lines: Iterable[str], *, named: float) -> Path:
        """Add a data file of these lines."""
        path = self._add(self._file(table, hlc(named), ()))
        path.write_text("".join(f"{line}\n" for line in lines))
        return path

    def resolve(self, at: float) -> Path:
        """Add a RESOLVED file."""
        return self._add(Resolved(hlc(at)))

    def target(self, table: str) -> Path:
        return self.place / "lake" / table

    def rows(self, table: str) -> dict[int, str | None]:
        """The target by delta-rs; empty if it is not there."""
        if not (self.target(table) / "_delta_log").is_dir():
            return {}
        found = RustTable(str(self.target(table))).to_pyarrow_table().to_pylist()
        rows = {row["id"]: row["v"] for row in found}
        assert len(rows) == len(found), f"{table} has a key twice"
        return rows

    def versions(self) -> dict[str, int]:
        """The version of every Delta table, the ledger's too."""
        logs = (self.place / "lake").rglob("_delta_log")
        return {str(log.parent.relative_to(self.place)): RustTable(str(log.parent)).version() for log in logs}

    def _file(self, table: str, lower: Hlc, events: tuple[Event, ...]) -> DataFile:
        self._files += 1
        return DataFile(lower, "56087568dba1e6b8", 1, 1, self._files, table, events)

    def _add(self, file: DataFile | Resolved) -> Path:
        path = self.feed / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(file.content)
        return path


def hlc(seconds: float) -> Hlc:
    return Hlc(BASE * 10**9 + round(seconds * 10**9))
