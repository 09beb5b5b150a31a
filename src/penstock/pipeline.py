"""Watermark → load → tables → cut: the one algorithm of the design, section 3."""

from __future__ import annotations

import re
import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pyspark import StorageLevel
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from penstock import config as configuration
from penstock.apply import Applied, Commit, Target, append, merge, prepare, standing
from penstock.errors import ConfigError, FileUnreadableError, ParseError, PenstockError, RowError, TargetError
from penstock.failpoint import reach
from penstock.feeds import FAULT, FILE, SET_ASIDE, Feed, Listing
from penstock.feeds.cockroachdb import ddl
from penstock.feeds.cockroachdb.feed import CockroachFeed
from penstock.ledger import Ledger
from penstock.load import FeedFile, FeedState, Load, Selection, TableCut, select
from penstock.ordering import column, newest
from penstock.position import Hlc
from penstock.report import FeedReport, RunReport, TableReport
from penstock.sessions import own_session
from penstock.storage import SPARK_ERRORS, Storage

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from pyspark.sql import Row, SparkSession

    from penstock.config import Config

_STEPS = 1_000_000
_THREADS = 8
# A watermark that moves while nothing changes is noted this often, so that listings stay short.
_NOTE_SECONDS = 3600.0

_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class FeedPlan:
    """What a run would do to a feed now."""

    feed: str
    watermark: Hlc | None
    end: Hlc | None
    state: FeedState
    selection: Selection
    starts: Mapping[str, Hlc | None]
    unconfigured: Mapping[str, int]

    @property
    def next_load(self) -> Load | None:
        """The load to run: the unfinished one, else a new one if there is something to read, else none."""
        if self.state.unfinished is not None:
            return self.state.unfinished
        if self.end is None or not self.selection.candidates:
            return None
        behind = {table: at for table, at in self.starts.items() if at is None or at < self.end}
        files = tuple(file for file in self.selection.candidates if file.table in behind)
        if not files:
            return None
        return Load(self.state.number + 1, uuid.uuid4().hex, self.end, behind, files)


class Pipeline:
    """The feeds of one penstock.yml and their targets."""

    def __init__(self, config: Config) -> None:
        self.config = config

    @classmethod
    def from_file(cls, path: str | Path) -> Pipeline:
        """Read penstock.yml."""
        return cls(configuration.load(Path(path)))

    def plan(self, spark: SparkSession, **options: Any) -> list[FeedPlan]:
        """Return what `run` would do now; takes `run`'s options and writes nothing."""
        return [one.plan() for one in self._feeds(spark, **options)]

    def run(self, spark: SparkSession, **options: Any) -> RunReport:
        """Move every feed's targets to its watermark.

        Args:
            spark: A classic session with Delta.
            **options: `until` (a position: go no further), `tables` and `feeds` (only these), `first` (where tables
                without a load begin, exclusive), `full_listing` (look at every directory), `progress` (called with
                feed, table and what was reached).

        Returns:
            What was done. A second run right after it does nothing.

        Raises:
            PenstockError: Nothing was half-written; the same call may be made again.
        """
        return RunReport(self.config.name, tuple(one.run() for one in self._feeds(spark, **options)))

    def _feeds(
        self,
        spark: SparkSession,
        *,
        until: Hlc | str | None = None,
        tables: Sequence[str] | None = None,
        feeds: Sequence[str] | None = None,
        first: Hlc | str | None = None,
        full_listing: bool = False,
        progress: Callable[[str, str, str], None] | None = None,
    ) -> Iterator[_FeedRun]:
        for name in feeds or ():
            if name not in self.config.feeds:
                raise ConfigError(f"There is no feed `{name}` in the configuration.")
        known = {table for feed in self.config.feeds.values() for table in feed.tables}
        for table in tables or ():
            if table not in known:
                raise ConfigError(f"There is no table `{table}` in the configuration.")
        for name in feeds or self.config.feeds:
            yield _FeedRun(
                self.config,
                name,
                spark,
                until=Hlc.read(until) if isinstance(until, str) else until,
                only=None if tables is None else frozenset(tables),
                first=Hlc.read(first) if isinstance(first, str) else first,
                full_listing=full_listing,
                progress=progress or (lambda _feed, _table, _what: None),
            )


@dataclass(frozen=True, slots=True)
class _Read:
    """A table's rows of a load, decoded once and kept, with what the one pass over them found."""

    changes: DataFrame
    files: int
    rows_read: int
    replays: int
    above: int
    in_interval: int
    set_aside: int
    held: tuple[FeedFile, ...]
    bounds: tuple[Any, Any] | None


class _FeedRun:
    """One run over one feed."""

    def __init__(
        self,
        config: Config,
        name: str,
        spark: SparkSession,
        *,
        until: Hlc | None,
        only: frozenset[str] | None,
        first: Hlc | None,
        full_listing: bool,
        progress: Callable[[str, str, str], None],
    ) -> None:
        self.name = name
        self._spark = own_session(spark)
        self._settings = config.feeds[name]
        self._until = until
        self._first = first
        self._full_listing = full_listing
        self._progress = progress
        self._pipeline = config.name
        self._feed: Feed = open_feed(config, name, self._spark)
        self._targets = {table: target(config, name, table, self._feed) for table in self._feed.tables}
        self._tables = [table for table in self._targets if only is None or table in only]
        self._ledger = Ledger(self._spark, config.ledger, config.name)
        self._kept: list[DataFrame] = []

    def plan(self) -> FeedPlan:
        """Decide what to do: the watermark is read first, then the files are listed."""
        state = self._ledger.state(self.name)
        watermark = self._feed.watermark()
        end = min((one for one in (watermark, self._until) if one is not None), default=None) if watermark else None
        starts = state.starts(self._tables, self._first)
        since = self._since(starts)
        listing = self._feed.listing(since) if end is not None else Listing(())
        selection = select(
            listing.files,
            consumed=self._ledger.consumed(self.name, since, state.held) if end is not None else {},
            held=state.held,
            end=end or Hlc(0),
            tables=self._tables,
        )
        return FeedPlan(self.name, watermark, end, state, selection, starts, listing.unconfigured)

    def run(self) -> FeedReport:
        """Do what the plan says."""
        plan = self.plan()
        load = plan.next_load
        if load is None:
            return self._idle(plan)
        self._check_targets(plan.state)
        if not load.resumed:
            reach("before-register")
            self._ledger.register(self.name, load, {table: self._targets[table].identifier for table in load.starts})
            reach("registered")
        return self._apply(plan, load)

    def _since(self, starts: Mapping[str, Hlc | None]) -> Hlc | None:
        """Return from where directories are listed; None is from the beginning."""
        if self._full_listing or any(start is None for start in starts.values()):
            return None
        return min((start for start in starts.values() if start), default=Hlc(0)).minus(self._settings.lookback)

    def _idle(self, plan: FeedPlan) -> FeedReport:
        """Nothing to read: say so, and once an hour note that the watermark moved."""
        state, end = plan.state, plan.end
        applied = state.position
        behind = end is not None and applied is not None and applied < end
        if (
            end is not None
            and behind
            and time.time() - (state.closed_at or 0) > _NOTE_SECONDS
            and set(state.cut) <= set(self._tables)
        ):
            load = Load(state.number + 1, uuid.uuid4().hex, end, plan.starts, ())
            cut = [TableCut(one.table, end, one.target, one.table_id, one.version) for one in state.cut.values()]
            self._ledger.close(self.name, load, "consumed", cut, {}, state.held)
            applied = end
        return FeedReport(
            self.name,
            "waiting" if plan.watermark is None else "idle",
            _text(plan.watermark),
            _text(applied),
            held_files=len(state.held),
            unconfigured=plan.unconfigured,
        )

    def _check_targets(self, state: FeedState) -> None:
        """Refuse a target that is not the one the last cut left: what is missing from it would never come back."""

        def check(one: TableCut) -> None:
            target = self._targets.get(one.table)
            if target is None or one.table_id is None or one.version is None:
                return
            now = standing(self._spark, target)
            if now is None:
                what = "is gone"
            elif now.table_id != one.table_id:
                what = "is another table than the one of the last cut"
            elif now.version < one.version:
                what = f"went back from version {one.version} to {now.version}"
            else:
                return
            raise TargetError(
                f"The target {target.identifier} {what}; a load on top of it would leave it incomplete.",
                feed=self.name,
                table=one.table,
                hint="Put it back (RESTORE or undrop), or begin anew: remove the ledger and the targets of this feed.",
            )

        _each(check, state.cut.values())

    def _apply(self, plan: FeedPlan, load: Load) -> FeedReport:
        files = {
            table: tuple(f for f in load.files if f.table == table) for table in load.starts if table in self._targets
        }
        reads: dict[str, _Read] = {}
        try:
            try:
                reads = dict(
                    _each(lambda table: (table, self._read(table, load, files[table])), [t for t in files if files[t]])
                )
            except (ParseError, FileUnreadableError):
                # Nothing was applied: the next run lists anew and sees a file that was repaired or taken away.
                self._ledger.close(self.name, load, "abandoned", plan.state.cut.values(), {}, plan.state.held)
                raise
            reach("decoded")
            moving = [table for table, read in reads.items() if read.in_interval]
            done = dict(_each(lambda table: (table, self._move(table, load, reads[table])), moving))
            aside = self._set_aside(load, reads)
        finally:
            for rows in self._kept:
                rows.unpersist()
        cut, counts = self._cut(plan.state, load, reads, done)
        for table in aside:
            counts[table]["set_aside"] = aside[table]
        held = [f for f in plan.state.held if f.table not in load.starts] + [
            f for read in reads.values() for f in read.held
        ]
        reach("before-consume")
        self._ledger.close(self.name, load, "consumed", cut, counts, held)
        reach("consumed")
        standings = {one.table: one.version for one in cut}
        return FeedReport(
            self.name,
            "applied",
            _text(plan.watermark),
            str(load.end),
            load.number,
            resumed=load.resumed,
            held_files=len(held),
            tables=tuple(
                TableReport(
                    table,
                    self._targets[table].identifier,
                    _text(load.starts[table]),
                    files=len(files[table]),
                    version=standings[table],
                    **counts[table],
                )
                for table in files
            ),
            unconfigured=plan.unconfigured,
        )

    def _read(self, table: str, load: Load, files: Sequence[FeedFile]) -> _Read:
        """Decode a table's files once and look at every row: faults, held files, cells set aside, the keys' bounds."""
        start, end = load.starts[table], load.end
        rows = self._feed.read(self._spark, table, files).persist(StorageLevel.MEMORY_AND_DISK)
        self._kept.append(rows)
        version = F.col("_commit_version")
        after_start = F.lit(True) if start is None else version > start.sortable
        wanted = after_start & (version <= end.sortable)
        first_key = column(self._targets[table].key[0])
        counted = rows.groupBy(FILE).agg(
            F.count("*").alias("rows"),
            F.count_if(~after_start).alias("replays"),
            F.count_if(version > end.sortable).alias("above"),
            F.count_if(wanted).alias("wanted"),
            F.count_if(wanted & F.col(SET_ASIDE).isNotNull()).alias("aside"),
            F.min(FAULT).alias("fault"),
            F.min(F.when(wanted, first_key)).alias("least"),
            F.max(F.when(wanted, first_key)).alias("most"),
        )
        try:
            found = counted.collect()
        except SPARK_ERRORS as error:
            raise _unreadable(error, self.name, table) from error
        by_url = {self._feed.url(file): file for file in files}
        for row in sorted(found, key=lambda one: str(one[FILE])):
            if row["fault"] is not None:
                raise self._fault(table, by_url[row[FILE]], row["fault"])
        self._progress(self.name, table, "decoded")
        bounds = [(row["least"], row["most"]) for row in found if row["least"] is not None]
        return _Read(
            changes=rows,
            files=len(files),
            rows_read=sum(row["rows"] for row in found),
            replays=sum(row["replays"] for row in found),
            above=sum(row["above"] for row in found),
            in_interval=sum(row["wanted"] for row in found),
            set_aside=sum(row["aside"] for row in found),
            held=tuple(by_url[row[FILE]] for row in found if row["above"]),
            bounds=(min(low for low, _ in bounds), max(high for _, high in bounds)) if bounds else None,
        )

    def _winners(self, table: str, load: Load, read: _Read) -> DataFrame:
        start = load.starts[table]
        rows = read.changes.where(F.col("_commit_version") <= load.end.sortable)
        if start is not None:
            rows = rows.where(F.col("_commit_version") > start.sortable)
        return newest(rows.drop(FAULT), key=self._targets[table].key, order=["_commit_version"], beside=[FILE])

    def _move(self, table: str, load: Load, read: _Read) -> Applied:
        target = self._targets[table]
        empty = prepare(self._spark, target)
        commit = Commit(
            f"penstock/{self._pipeline}/{self.name}/{table}", load.number * _STEPS, load.number, str(load.end)
        )
        reach(f"before-commit:{table}")
        winners = self._winners(table, load, read)
        try:
            if empty:
                applied = append(self._spark, target, winners, commit=commit)
            else:
                applied = merge(
                    self._spark,
                    target,
                    winners,
                    commit=commit,
                    version_of=self._feed.version_of,
                    bounds=read.bounds,
                )
        except PenstockError as error:
            raise error.at(feed=self.name, table=table) from error
        reach(f"committed:{table}")
        self._progress(self.name, table, "committed")
        return applied

    def _set_aside(self, load: Load, reads: Mapping[str, _Read]) -> dict[str, int]:
        """Keep the cells of the winning rows that have no equivalent, all tables in one commit; return their number."""
        parts = []
        for table, read in reads.items():
            if read.set_aside:
                key = F.to_json(F.array(*[column(name).cast("string") for name in self._targets[table].key]))
                parts.append(
                    self._winners(table, load, read).select(
                        F.lit(table).alias("table"),
                        key.alias("key"),
                        F.col(FILE).alias("file"),
                        column(self._targets[table].position_column).alias("position"),
                        F.inline(F.col(SET_ASIDE)),
                    )
                )
        if not parts:
            return {}
        cells = reduce(DataFrame.unionByName, parts)
        self._ledger.set_aside(cells, self.name, load)
        reach("set-aside")
        return {row["table"]: row["count"] for row in cells.groupBy("table").count().collect()}

    def _cut(
        self, state: FeedState, load: Load, reads: Mapping[str, _Read], done: Mapping[str, Applied]
    ) -> tuple[list[TableCut], dict[str, dict[str, int]]]:
        """Return where every table stands after the load, and what was counted."""
        cut = {table: one for table, one in state.cut.items() if table in self._targets}
        counts: dict[str, dict[str, int]] = {}
        for table in load.starts:
            if table not in self._targets:
                continue
            before = cut.get(table)
            applied = done.get(table)
            cut[table] = TableCut(
                table,
                load.end,
                self._targets[table].identifier,
                applied.standing.table_id if applied else before.table_id if before else None,
                applied.standing.version if applied else before.version if before else None,
            )
            read = reads.get(table)
            moved = (applied.inserted, applied.updated, applied.deleted) if applied else (0, 0, 0)
            counts[table] = dict(zip(("inserted", "updated", "deleted"), moved, strict=True))
            if read is not None:
                counts[table] |= {
                    "rows_read": read.rows_read,
                    "replays": read.replays,
                    "above": read.above,
                    "collapsed": read.in_interval - sum(moved),
                }
        return list(cut.values()), counts

    def _fault(self, table: str, file: FeedFile, fault: Row) -> RowError:
        what, hint = self._feed.explain_fault(fault["code"])
        return RowError(
            f"{what}: {fault['text']}", code=fault["code"], feed=self.name, table=table, file=file.path, hint=hint
        )


def open_feed(config: Config, name: str, spark: SparkSession) -> Feed:
    """Return the feed that the configuration names."""
    settings = config.feeds[name]
    schemas = {}
    for table, one in settings.tables.items():
        try:
            if one.ddl is not None:
                schemas[table] = ddl.parse_ddl(Path(config.place(one.ddl)).read_text(encoding="utf-8"))
            else:
                schemas[table] = ddl.from_columns(one.columns or {}, primary_key=one.primary_key or ())
        except OSError as error:
            raise ConfigError(f"The DDL of table `{table}` cannot be read: {error}.", feed=name, table=table) from error
        except PenstockError as error:
            raise error.at(feed=name, table=table, file=one.ddl) from error
    return CockroachFeed(name, Storage(spark, config.place(settings.path)), schemas)


def target(config: Config, feed: str, table: str, source: Feed) -> Target:
    """Return the target of a feed's table."""
    settings = config.feeds[feed].tables[table]
    shape = source.tables[table]
    parts = _target_parts(table)
    place = config.destination.path
    path = None if place is None else "/".join([config.place(place), *parts])
    if path is not None:
        identifier = "delta.`" + path.replace("`", "``") + "`"
    else:
        name = [str(config.destination.catalog), str(config.destination.schema_), parts[-1]]
        identifier = ".".join("`" + part.replace("`", "``") + "`" for part in name)
    return Target(
        identifier,
        path,
        shape.schema,
        shape.key,
        shape.position_column,
        {**config.destination.properties, **settings.properties},
        settings.partition_by,
        settings.cluster_by,
        settings.schema_changes,
    )


def _target_parts(table: str) -> list[str]:
    """Return the folders of a target: `shop.orders` lies in `shop/orders`; nothing leads out of the destination."""
    parts = [part.strip('"') for part in table.split(".")]
    bad = any(
        not part or part in (".", "..") or part.startswith("_") or set(part) & set("/\\:\0\n\r") for part in parts
    )
    if bad:
        raise ConfigError(f"`{table}` cannot be the name of a target.", table=table)
    return parts


def _each(action: Callable[[Any], _T], items: Iterable[Any]) -> list[_T]:
    """Do the same to all, in parallel threads; the first error is raised after all have ended."""
    todo = list(items)
    if not todo:
        return []
    with ThreadPoolExecutor(min(_THREADS, len(todo)), thread_name_prefix="penstock") as pool:
        return [future.result() for future in [pool.submit(action, item) for item in todo]]


def _unreadable(error: Exception, feed: str, table: str) -> FileUnreadableError:
    named = re.search(r"(?:reading file|File|Path does not exist:) (\S+://?.+?)[.,]?(?:\s|$)", str(error))
    first = next((line.strip() for line in str(error).splitlines() if "Exception" in line), str(error))
    return FileUnreadableError(
        f"A file cannot be read: {first[:400]}",
        feed=feed,
        table=table,
        file=named[1] if named else None,
        hint="Nothing was applied. Put the file right or take it away, and run again.",
    )


def _text(position: Hlc | None) -> str | None:
    return None if position is None else str(position)
