"""What a run did, as values that print and that turn into documented JSON."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table of a load.

    Rows read = replays (at or below start: seen before) + above (over the end: held) + rows of the interval; those are
    inserted, updated or deleted, or collapsed: repeated, or replaced by a newer row of the same key.
    """

    table: str
    target: str
    start: str | None
    files: int = 0
    rows_read: int = 0
    replays: int = 0
    above: int = 0
    collapsed: int = 0
    inserted: int = 0
    updated: int = 0
    deleted: int = 0
    set_aside: int = 0
    version: int | None = None


@dataclass(frozen=True, slots=True)
class FeedReport:
    """One feed of a run. `state`: `applied`, `idle` (nothing new), `waiting` (no watermark yet)."""

    feed: str
    state: str
    watermark: str | None
    applied: str | None
    load: int | None = None
    resumed: bool = False
    held_files: int = 0
    tables: tuple[TableReport, ...] = ()
    unconfigured: Mapping[str, int] = field(default_factory=dict)

    def total(self, name: str) -> int:
        """Return a count summed over the tables."""
        return sum(getattr(table, name) for table in self.tables)


@dataclass(frozen=True, slots=True)
class RunReport:
    """What one `run` did to every feed."""

    pipeline: str
    feeds: tuple[FeedReport, ...]

    @property
    def set_aside(self) -> int:
        """Cells set aside by this run."""
        return sum(feed.total("set_aside") for feed in self.feeds)

    def to_dict(self) -> dict[str, Any]:
        """Return the report as JSON-ready values; the shape only grows."""
        feeds = []
        for feed in self.feeds:
            names = ("rows_read", "replays", "above", "collapsed", "inserted", "updated", "deleted", "set_aside")
            totals = {name: feed.total(name) for name in names}
            rows_applied = totals["inserted"] + totals["updated"] + totals["deleted"]
            feeds.append({**asdict(feed), **totals, "rows_applied": rows_applied})
        return {"pipeline": self.pipeline, "feeds": feeds}
