"""A small changefeed tree with its penstock.yml, for tests that need a feed and not a story."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import yaml
from deltalake import DeltaTable as RustTable

from penstock.position import Hlc

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

SCHEMA = "CREATE TABLE public.t (\n\tid INT8 NOT NULL,\n\tv STRING NULL,\n\tCONSTRAINT t_pkey PRIMARY KEY (id ASC)\n)"
BASE = 1_770_067_700
#: A row: key, value (None deletes), seconds after BASE.
Row = tuple[int, "str | None", float]


class FeedTree:
    """Tables of `id INT8, v STRING`; seconds are counted from BASE."""

    def __init__(self, place: Path, tables: dict[str, str]) -> None:
        self.place = place
        self.feed = place / "feed"
        self.config = place / "penstock.yml"
        self._files = 0
        self.feed.mkdir()
        for name, ddl in tables.items():
            (place / f"{name}.sql").write_text(ddl)
        feeds = {
            "crdb": {"kind": "cockroachdb", "path": "feed", "tables": {name: {"ddl": f"{name}.sql"} for name in tables}}
        }
        self.config.write_text(yaml.safe_dump({"name": "test", "destination": {"path": "lake"}, "feeds": feeds}))

    def write(
        self, table: str, rows: Iterable[Row], *, named: float | None = None, session: str = "56087568dba1e6b8"
    ) -> Path:
        """Add a data file, named at its oldest row unless told otherwise."""
        rows = list(rows)
        return self.write_lines(
            table,
            [line(*row) for row in rows],
            named=min(r[2] for r in rows) if named is None else named,
            session=session,
        )

    def write_lines(self, table: str, lines: Iterable[str], *, named: float, session: str = "56087568dba1e6b8") -> Path:
        """Add a data file of these lines."""
        self._files += 1
        path = self._dated(hlc(named)) / f"{hlc(named).name}-{session}-1-1-{self._files:08x}-{table}-1.ndjson"
        path.write_text("".join(f"{text}\n" for text in lines))
        return path

    def resolve(self, at: float) -> Path:
        """Add a RESOLVED file."""
        path = self._dated(hlc(at)) / f"{hlc(at).name}.RESOLVED"
        path.write_text(json.dumps({"resolved": str(hlc(at))}))
        return path

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

    def _dated(self, at: Hlc) -> Path:
        path = self.feed / f"{at.instant:%Y-%m-%d}"
        path.mkdir(exist_ok=True)
        return path


def hlc(seconds: float) -> Hlc:
    return Hlc(BASE * 10**9 + round(seconds * 10**9))


def line(key: int, value: str | None, at: float) -> str:
    after = None if value is None else {"id": key, "v": value}
    return json.dumps({"after": after, "key": [key], "updated": str(hlc(at))})
