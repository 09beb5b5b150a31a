"""The bank's record as a changefeed tells it, with all that goes wrong in one, and a recipe that believes the files."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING

from penstock.demo.bank import DDL, Bank, Tables
from penstock.demo.changefeed import DataFile, Event, Resolved, Sink

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.position import Hlc

#: Fewer rounds leave no room for the accidents.
FEWEST_ROUNDS = 3
_NODES = 2
_ROWS_PER_FILE = 250


@dataclass(frozen=True, slots=True)
class Round:
    """What one round adds to the bucket, in the order it is written: data files, then RESOLVED.

    `story` says in a few words what goes wrong in it; `repeats` counts the rows that were written before.
    """

    number: int
    story: str
    repeats: int
    files: tuple[DataFile, ...]
    resolved: Resolved


def tell(bank: Bank, *, seed: int, rounds: int) -> list[Round]:
    """Return the files of a bank's changefeed.

    Two nodes write, each its own keys. Node 2 always runs ahead: rows above RESOLVED stand in its files, while the
    other half of their transactions comes a round later. Every second round the job starts again and repeats what came
    after the last RESOLVED. A third node was replaced at the very beginning and does not know it: from the third round
    on it repeats, in files named far below RESOLVED, what the accounts were a while ago. All within CockroachDB's
    rules: a row first seen after RESOLVED R is newer than R, and only repeats come late.

    Args:
        bank: The record.
        seed: Makes the session ids.
        rounds: In how many rounds to tell it, at least `FEWEST_ROUNDS`.
    """
    if rounds < FEWEST_ROUNDS:
        raise ValueError(f"{rounds} rounds are too few to go wrong in every way; take {FEWEST_ROUNDS} or more")
    feed = _Feed(bank, Random(seed))
    moments = [transaction.at for transaction in bank.transactions]
    ends = [moments[len(moments) * number // rounds - 1] for number in range(1, rounds + 1)]
    return [feed.round(number, ends) for number in range(1, rounds + 1)]


class Recipe:
    """The well-known recipe: merge each batch as it arrives, the newest row of each key first reduced by its HLC.

    WHEN MATCHED AND deleted THEN DELETE; WHEN MATCHED AND newer THEN UPDATE; WHEN NOT MATCHED THEN INSERT. It knows no
    watermark, its deletes are not guarded, and a row it deleted can come back.
    """

    def __init__(self) -> None:
        self.tables: Tables = {table: {} for table in DDL}

    def merge(self, files: Iterable[DataFile]) -> None:
        """Merge one batch of files."""
        batch: dict[tuple[str, tuple[object, ...]], Event] = {}
        for file in files:
            for event in file.events:
                known = batch.get((event.table, event.key))
                if known is None or event.at >= known.at:
                    batch[event.table, event.key] = event
        for (table, key), event in batch.items():
            held = self.tables[table].get(key)
            if event.row is None:
                self.tables[table].pop(key, None)
            elif held is None or event.at > held.at:
                self.tables[table][key] = event


class _Feed:
    """The changefeed job: its nodes, and how far each has come."""

    def __init__(self, bank: Bank, random: Random) -> None:
        self.bank = bank
        self.random = random
        self.scan = bank.transactions[0].at
        self.resolved = self.scan
        self.started = 0
        self.overtaken = self._sink(_NODES + 1, self.scan)
        self.sinks = [self._sink(node, self.scan) for node in range(1, _NODES + 1)]
        self.come = [self.scan] * _NODES
        self.written: set[tuple[str, tuple[object, ...], Hlc]] = set()

    def round(self, number: int, ends: list[Hlc]) -> Round:
        end, last = ends[number - 1], number == len(ends)
        ahead = end if last else self._ahead(end, ends[number])
        files: list[DataFile] = []
        stories = []
        if number == 1:
            stories.append("first scan")
            files += self._flush([self.scan] * _NODES, first=True)
        if number % 2 == 0:
            stories.append("restart")
            files += self._flush([self._ahead(max(self.come), end)] * _NODES)
            self._restart()
        files += self._flush([end, end if last else self._ahead(end, ahead)])
        if not last:
            stories.append("node 2 ahead")
            files += self._flush([end, ahead])
        if number >= FEWEST_ROUNDS:
            stories.append("late repeats")
            files += self._late(ends[number - 3])
        self.resolved = end
        rows = [(event.table, event.key, event.at) for file in files for event in file.events]
        repeats = len(rows) - len(set(rows) - self.written)
        self.written.update(rows)
        return Round(number, ", ".join(stories), repeats, tuple(files), Resolved(end))

    def _flush(self, until: list[Hlc], *, first: bool = False) -> list[DataFile]:
        """Let each node write its rows up to its `until`, and note how far it came."""
        files = []
        for node, (sink, end) in enumerate(zip(self.sinks, until, strict=True)):
            begin = self.come[node]
            rows = [
                event
                for transaction in self.bank.transactions
                if begin < transaction.at <= end or (first and transaction.at == end)
                for event in transaction.events
                if _owner(event) == node
            ]
            files += [file.shuffled(self.random) for file in sink.write(rows, rows_per_file=_ROWS_PER_FILE)]
            sink.flushed(end)
            self.come[node] = max(begin, end)
        return files

    def _restart(self) -> None:
        """Begin again from the last RESOLVED, with new sessions."""
        self.sinks = [self._sink(node, self.resolved.next()) for node in range(1, _NODES + 1)]
        self.come = [self.resolved] * _NODES

    def _late(self, until: Hlc) -> list[DataFile]:
        """Let the overtaken node, which had the accounts once, repeat them up to `until`, scan included."""
        return self.overtaken.write(
            event
            for transaction in self.bank.transactions
            if transaction.at <= until
            for event in transaction.events
            if event.table == "accounts"
        )

    def _ahead(self, begin: Hlc, end: Hlc) -> Hlc:
        """Return a transaction's moment about a third of the way from `begin` to `end`."""
        between = [transaction.at for transaction in self.bank.transactions if begin <= transaction.at <= end]
        return between[len(between) // 3]

    def _sink(self, node: int, lower: Hlc) -> Sink:
        self.started += 1
        return Sink(f"{self.random.getrandbits(64):016x}", node, self.started, lower)


def _owner(event: Event) -> int:
    """Return which node writes the rows of a key."""
    key = event.key[0]
    return int(str(key).replace("-", "")[-1], 16) % _NODES
