"""Random changefeeds: what a database did, and the files in which a changefeed tells of it, in any order it may.

A history keeps CockroachDB's rules: no row is older than its file's name; a row that is first seen after RESOLVED R is
newer than R and in a file named above R; only repeats come late. Within them everything that can happen does: several
nodes, lagging keys, repeats, restarts that rewind, nodes that do not know they were replaced, RESOLVED files that come
late. With `recreated` a feed may also be made anew from a cursor below R: then new rows, newer than R, come in files
named below it.

`build` is the same for a shrinking source of randomness (`histories`) and for a plain seed (`packed_histories`: large
enough that one Spark load checks a hundred keys, each with a life of its own).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from decimal import Decimal
from random import Random
from typing import TYPE_CHECKING

from hypothesis import strategies as st

from penstock.demo.changefeed import DataFile, Event, Layout, Resolved, Sink
from penstock.position import Hlc

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

Place = tuple[str, tuple[object, ...]]
Version = tuple[str, tuple[object, ...], Hlc]

BEGIN = Hlc(1_770_076_790_000_000_000)  # ten seconds before midnight: directories change on the way
_TEXTS = ("", "plain", 'a "quote", a \\ and a\nnewline', "naïve 🙂", "null", None)
# Names that a careless prefix or glob match would mix up; the second keeps its key in another order than its columns.
_ORDERS = """\
CREATE TABLE public.orders (
	id INT8 NOT NULL,
	v STRING NULL,
	n DECIMAL(10,2) NULL,
	CONSTRAINT orders_pkey PRIMARY KEY (id ASC)
)"""
_ARCHIVE = """\
CREATE TABLE public."orders-archive" (
	part INT4 NOT NULL,
	v STRING NULL,
	n DECIMAL(10,2) NULL,
	id INT8 NOT NULL,
	CONSTRAINT "orders-archive_pkey" PRIMARY KEY (id ASC, part ASC)
)"""
_OLD = """\
CREATE TABLE public.old_orders (
	id STRING NOT NULL,
	v STRING NULL,
	n DECIMAL(10,2) NULL,
	CONSTRAINT old_orders_pkey PRIMARY KEY (id ASC)
)"""
DDL = {"orders": _ORDERS, "orders-archive": _ARCHIVE, "old_orders": _OLD}
KEYS = {"orders": ("id",), "orders-archive": ("id", "part"), "old_orders": ("id",)}


@dataclass(frozen=True)
class Round:
    """What one round adds to the bucket, and the newest RESOLVED that is there after it (None: none yet)."""

    files: Mapping[str, bytes]
    watermark: Hlc | None


@dataclass(frozen=True)
class History:
    """What happened (`events`), the files in the order they were written (`log`), and the same in `rounds`."""

    ddl: Mapping[str, str]
    events: tuple[Event, ...]
    log: tuple[DataFile | Resolved, ...]
    rounds: tuple[Round, ...]
    name: str | None = None

    def __repr__(self) -> str:
        """Say how to build it, or else say all of it."""
        if self.name:
            return self.name
        lines = [f"{event.table} {event.key} @{event.at} {event.row}" for event in self.events]
        for number, added in enumerate(self.rounds, 1):
            lines += [f"round {number}, watermark {added.watermark}:"]
            lines += [f"  {path}\n    {content!r}" for path, content in added.files.items()]
        return "\n".join(lines)


@dataclass(frozen=True)
class Size:
    """How much of everything: `steps` are transactions, flushes, RESOLVED files and accidents, in that frequency."""

    tables: int = 3
    keys: int = 2
    steps: int = 40
    rounds: int = 4
    recreated: bool = False


PACKED = Size(keys=40, steps=600, rounds=6)


def build(random: Random, size: Size = Size()) -> History:
    """Return a history drawn from `random`."""
    tables = list(DDL)[: size.tables]
    database = _Database(random, tables, size.keys)
    layouts: tuple[Layout, ...] = ("daily", "hourly", "flat")
    feed = _Feed(random, database, random.choice(layouts), compressed=_one_in(random, 3))
    steps = [database.commit] * 8 + [feed.flush] * 6 + [feed.resolve] * 2 + [feed.repeat] * 2
    steps += [feed.restart, feed.resolve_late] + [feed.recreate] * size.recreated
    for _ in range(size.steps):
        random.choice(steps)()
    if not _one_in(random, 4):
        feed.settle()
    cuts = sorted(random.randrange(len(feed.log) + 1) for _ in range(size.rounds - 1))
    return History(
        {table: DDL[table] for table in tables},
        tuple(database.events),
        tuple(feed.log),
        tuple(_rounds(feed.log, [*cuts, len(feed.log)])),
    )


def histories(size: Size = Size()) -> st.SearchStrategy[History]:
    """Small histories whose every choice shrinks."""
    return st.randoms(use_true_random=False).map(lambda random: build(random, size))


def packed_histories(size: Size = PACKED) -> st.SearchStrategy[History]:
    """Large histories from one seed: the seed does not shrink, but one load carries a hundred lives."""

    def packed(seed: int) -> History:
        return replace(build(Random(seed), size), name=f"build(Random({seed}), {size})")

    return st.integers(0, 2**32 - 1).map(packed)


def check_rules(events: Iterable[Event], log: Iterable[DataFile | Resolved], *, recreated: bool = False) -> None:
    """Assert that a changefeed's files, in the order they were written, keep CockroachDB's rules."""
    seen: set[Version] = set()
    newest: dict[Place, Hlc] = {}
    paths: set[str] = set()
    resolved: Hlc | None = None
    happened = {_version(event) for event in events}
    for entry in log:
        assert entry.path not in paths, "a file is written once"
        paths.add(entry.path)
        if isinstance(entry, Resolved):
            resolved = entry.at if resolved is None else max(resolved, entry.at)
            assert {version for version in happened if version[2] <= resolved} <= seen, "RESOLVED is complete"
            continue
        assert entry.events, "no file is empty"
        assert all(event.at >= entry.lower for event in entry.events), "a name is a lower bound"
        new = [event for event in entry.events if _version(event) not in seen]
        assert all(_place(event) not in newest or event.at > newest[_place(event)] for event in new), "per key in order"
        if new and resolved is not None:
            assert all(event.at > resolved for event in new), "only repeats come late"
            assert recreated or entry.lower > resolved, "new rows are in files named above RESOLVED"
        seen |= {_version(event) for event in new}
        newest |= {_place(event): max(other.at for other in new if _place(other) == _place(event)) for event in new}
    assert seen <= happened


class _Database:
    """The source: transactions over its tables, each at one HLC of its own."""

    def __init__(self, random: Random, tables: list[str], keys: int) -> None:
        self.random = random
        self.now = BEGIN
        self.events: list[Event] = []
        self.keys = [(table, number) for table in tables for number in range(keys)]
        self.alive: set[tuple[str, int]] = set()

    def commit(self) -> None:
        """Change up to three rows at one new HLC: insert, update, delete, or give a row another key."""
        self.now = self._tick()
        touched: set[tuple[str, int]] = set()
        for _ in range(1 + self.random.randrange(3)):
            row = self.random.choice(self.keys)
            if row not in touched:
                touched |= self._change(row, touched)

    def _change(self, row: tuple[str, int], touched: set[tuple[str, int]]) -> set[tuple[str, int]]:
        what = self.random.randrange(4) if row in self.alive else 0
        if what <= 1:
            self._put(row)
            return {row}
        self._delete(row)
        other = (row[0], self.random.choice(self.keys)[1])
        if what == 3 and other not in touched | self.alive | {row}:
            self._put(other)
            return {row, other}
        return {row}

    def _put(self, row: tuple[str, int]) -> None:
        table, key = row[0], _key(*row)
        amount = None if _one_in(self.random, 5) else Decimal(self.random.randrange(10**6)).scaleb(-2)
        values = {"v": self.random.choice(_TEXTS), "n": amount}
        self.alive.add(row)
        self.events.append(Event(table, key, self.now, dict(zip(KEYS[table], key, strict=True)) | values))

    def _delete(self, row: tuple[str, int]) -> None:
        self.alive.discard(row)
        self.events.append(Event(row[0], _key(*row), self.now, None))

    def _tick(self) -> Hlc:
        how = self.random.randrange(8)
        if how < 2:
            return self.now.next()
        nanos = (1, 999, 10**9, 10**9, 7 * 10**9, 25 * 60 * 10**9)[how - 2]
        return Hlc(self.now.wall + nanos, self.random.randrange(3))


class _Feed:
    """The changefeed: who writes which row when. `seen` are the events that are in the bucket."""

    def __init__(self, random: Random, database: _Database, layout: Layout, *, compressed: bool) -> None:
        self.random = random
        self.database = database
        self.layout: Layout = layout
        self.compressed = compressed
        self.log: list[DataFile | Resolved] = []
        self.seen: list[Event] = []
        self.known: set[Version] = set()
        self.sinks: list[Sink] = []
        self.replaced: list[Sink] = []
        self.resolved = BEGIN
        self.numbered = 0
        self._start(BEGIN)

    def flush(self) -> None:
        """Let one node or all write what they have, but for keys that lag; some do not note how far they came."""
        for sink in [self.random.choice(self.sinks)] if _one_in(self.random, 2) else self.sinks:
            self._flush(sink, lagging=_one_in(self.random, 2), noted=not _one_in(self.random, 6))

    def resolve(self) -> None:
        """Write a RESOLVED somewhere between the last one and what all nodes have flushed."""
        highest = before(min(sink.lower for sink in self.sinks))
        between = [event.at for event in self.database.events if self.resolved < event.at < highest]
        at = self.random.choice([highest, *between])
        if at > self.resolved:
            self.resolved = at
            self.log.append(Resolved(at, self.layout))

    def resolve_late(self) -> None:
        """Write a RESOLVED older than the newest: a coordinator that does not know it was replaced."""
        older = [event.at for event in self.database.events if event.at < self.resolved]
        late = Resolved(self.random.choice(older), self.layout) if older else None
        if late and late not in self.log:
            self.log.append(late)

    def restart(self) -> None:
        """Begin again with new sessions from the last checkpoint, which is at or above the last RESOLVED."""
        self._start(self.random.choice([self.resolved, before(min(sink.lower for sink in self.sinks))]))

    def recreate(self) -> None:
        """Begin again from a cursor that may be far below the last RESOLVED."""
        settled = [event.at for event in self.database.events if event.at <= self.resolved]
        self._start(self.random.choice([BEGIN, *settled]))

    def repeat(self) -> None:
        """Let a replaced node write rows again that are long in the bucket."""
        if self.replaced:
            sink = self.random.choice(self.replaced)
            self._write(sink, self._repeats(sink.lower))

    def settle(self) -> None:
        """Commit once more, bring everything that happened into the bucket, and say so."""
        self.database.commit()
        for sink in self.sinks:
            self._flush(sink, lagging=False, noted=True)
        self.resolved = self.database.now
        self.log.append(Resolved(self.resolved, self.layout))

    def _start(self, cursor: Hlc) -> None:
        self.replaced += self.sinks
        self.sinks = []
        for node in range(1 + self.random.randrange(3)):
            self.numbered += 1
            session = f"{self.random.randrange(2**64):016x}"
            self.sinks.append(
                Sink(session, node + 1, self.numbered, cursor.next(), layout=self.layout, compressed=self.compressed)
            )
        self.owners: dict[Place, Sink] = {}
        # What each event still waits for; a replay may leave out versions that were emitted before.
        self.skipped = {_version(event) for event in self.seen if event.at > cursor and _one_in(self.random, 4)}
        self.written: set[Version] = set()
        self.cursor = cursor

    def _waiting(self, sink: Sink) -> list[Event]:
        done = self.written | self.skipped
        return [
            event
            for event in self.database.events
            if event.at > self.cursor and _version(event) not in done and self._owner(event) is sink
        ]

    def _owner(self, event: Event) -> Sink:
        place = _place(event)
        if place not in self.owners:
            self.owners[place] = self.random.choice(self.sinks)
        return self.owners[place]

    def _flush(self, sink: Sink, *, lagging: bool, noted: bool) -> None:
        waiting = self._waiting(sink)
        late = {key: self.random.choice(waiting).at for key in dict.fromkeys(map(_place, waiting))} if lagging else {}
        late = {key: at for key, at in late.items() if _one_in(self.random, 3)}
        ready = [event for event in waiting if _place(event) not in late or event.at < late[_place(event)]]
        self.written |= {_version(event) for event in ready}
        self._write(sink, ready + (self._repeats(sink.lower) if _one_in(self.random, 3) else []))
        if noted:
            left = [event.at for event in waiting if _version(event) not in self.written]
            sink.flushed(before(min(left)) if left else self.database.now)

    def _repeats(self, lower: Hlc) -> list[Event]:
        known = [event for event in self.seen if event.at >= lower]
        return (
            [self.random.choice(known) for _ in range(1 + self.random.randrange(4 + len(known) // 4))] if known else []
        )

    def _write(self, sink: Sink, events: list[Event]) -> None:
        files = sink.write(events, rows_per_file=self.random.choice((None, 1 + len(events) // 2)))
        self.log += [file.shuffled(self.random) for file in files]
        self.seen += {_version(event): event for event in events if _version(event) not in self.known}.values()
        self.known |= {_version(event) for event in events}


def before(at: Hlc) -> Hlc:
    """Return the predecessor."""
    return Hlc(at.wall, at.logical - 1) if at.logical else Hlc(at.wall - 1, Hlc.MAX_LOGICAL)


def _rounds(log: list[DataFile | Resolved], cuts: list[int]) -> list[Round]:
    rounds, start = [], 0
    for cut in cuts:
        marks = [entry.at for entry in log[:cut] if isinstance(entry, Resolved)]
        rounds.append(Round({entry.path: entry.content for entry in log[start:cut]}, max(marks, default=None)))
        start = cut
    return rounds


def _key(table: str, number: int) -> tuple[object, ...]:
    if table == "orders-archive":
        return (number // 2, number % 2)
    return (f"k '{number}'",) if table == "old_orders" else (number,)


def _place(event: Event) -> Place:
    return (event.table, event.key)


def _version(event: Event) -> Version:
    return (event.table, event.key, event.at)


def _one_in(random: Random, n: int) -> bool:
    return random.randrange(n) == 0
