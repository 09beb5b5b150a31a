"""The guided tour: a bank's feed grows round by round, Penstock follows, each round is checked against the record."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any
from uuid import UUID

from penstock.demo.bank import DDL, TOTAL, Tables, open_bank, total
from penstock.demo.rounds import FEWEST_ROUNDS, Recipe, Round, tell
from penstock.errors import ConfigError, PenstockError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Self

    from pyspark.sql import SparkSession

    from penstock.demo.changefeed import DataFile, Event, Resolved

FOLDER = Path("penstock-demo")
_MARKER = ".penstock-demo"
_UPDATED = "__crdb__updated"
_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_CONFIG = """\
# The bank of `penstock demo`; every path is relative to this file.
name: bank
destination:
  path: lake
feeds:
  bank:
    kind: cockroachdb
    path: changefeed
    tables:
      accounts: {ddl: schemas/accounts.sql}
      transfers: {ddl: schemas/transfers.sql}
"""


@dataclass(frozen=True, slots=True)
class RoundReport:
    """One round: what Penstock read and holds, and what the recipe holds.

    Of the rows read, `replays` are of before the last round's watermark; `collapsed` are repeats inside the round, and
    rows with a newer one of the same key. `repeats` is what the feed knows itself: rows of the round it wrote before.
    """

    number: int
    story: str
    killed: bool
    watermark: str | None
    resolved: str
    repeats: int
    rows_read: int
    replays: int
    collapsed: int
    held_files: int
    total: Decimal
    wrong_rows: int
    recipe_total: Decimal
    recipe_wrong_rows: int
    seconds: float

    @property
    def exact(self) -> bool:
        """Whether the tables are, row by row, what the bank's record says at the newest RESOLVED."""
        return self.watermark == self.resolved and self.wrong_rows == 0 and self.total == TOTAL

    @property
    def recipe_error(self) -> Decimal:
        """How much money the recipe made (or lost, below zero)."""
        return self.recipe_total - TOTAL

    def to_dict(self) -> dict[str, object]:
        """Return JSON-ready values; money is text, so that it stays exact."""
        return {
            "round": self.number,
            "story": self.story,
            "killed": self.killed,
            "watermark": self.watermark,
            "repeats": self.repeats,
            "rows_read": self.rows_read,
            "replays": self.replays,
            "collapsed": self.collapsed,
            "held_files": self.held_files,
            "total": str(self.total),
            "exact": self.exact,
            "wrong_rows": self.wrong_rows,
            "recipe": {
                "total": str(self.recipe_total),
                "error": str(self.recipe_error),
                "wrong_rows": self.recipe_wrong_rows,
            },
            "seconds": round(self.seconds, 1),
        }


@dataclass(frozen=True, slots=True)
class DemoReport:
    """The whole tour."""

    folder: Path
    seed: int
    rounds: tuple[RoundReport, ...]
    seconds: float

    @property
    def exact(self) -> bool:
        """Whether every round was."""
        return all(one.exact for one in self.rounds)

    @property
    def config(self) -> Path:
        """The penstock.yml that the tour used."""
        return self.folder / "penstock.yml"

    @property
    def tables(self) -> dict[str, Path]:
        """Where the Delta tables are."""
        return {table: self.folder / "lake" / table for table in DDL}

    def to_dict(self) -> dict[str, object]:
        """Return JSON-ready values."""
        return {
            "folder": str(self.folder),
            "config": str(self.config),
            "tables": {table: str(path) for table, path in self.tables.items()},
            "seed": self.seed,
            "total": str(TOTAL),
            "exact": self.exact,
            "rounds": [one.to_dict() for one in self.rounds],
            "seconds": round(self.seconds, 1),
        }


def run_demo(
    folder: Path = FOLDER,
    *,
    seed: int = 1,
    rounds: int = 4,
    kill: bool = True,
    spark: SparkSession | None = None,
    say: Callable[[str], None] = lambda _: None,
    finished: Callable[[RoundReport], None] = lambda _: None,
) -> DemoReport:
    """Run the tour, anew each time.

    Args:
        folder: Where the feed, penstock.yml and the tables go; an empty folder, or one of an earlier tour.
        seed: Makes the bank; the same seed gives the same feed.
        rounds: How many times the feed grows and Penstock runs.
        kill: Whether one run, in the middle of the tour, dies by SIGKILL once `accounts` is committed.
        spark: The session to use; default is `penstock.session()`'s.
        say: Is told what goes on.
        finished: Is given each round when it is done.

    Raises:
        ConfigError: The folder holds something that is not a demo's, or the rounds are too few.
        PenstockError: A run failed, or the one to be killed was not.
    """
    from penstock.sessions import SMALL_DATA, jvm_log_path, session  # noqa: PLC0415 - importing the demo must not need Spark

    if rounds < FEWEST_ROUNDS:
        raise ConfigError(
            f"{rounds} rounds are too few to go wrong in every way.", hint=f"Take {FEWEST_ROUNDS} or more."
        )
    began = monotonic()
    prepare(folder)
    say("Starting Spark.")
    doomed = Doomed.start(folder / "penstock.yml") if kill else None
    reports = []
    try:
        spark = spark or session("penstock-demo", settings=SMALL_DATA, jvm_log=jvm_log_path())
        bank = open_bank(seed)
        tour = _Tour(folder, spark, Recipe(), say)
        for told in tell(bank, seed=seed, rounds=rounds):
            truth = bank.tables_at(told.resolved.at)
            reports.append(tour.round(told, truth, doomed if told.number == (rounds + 1) // 2 else None))
            finished(reports[-1])
    finally:
        if doomed:
            doomed.stop()
    return DemoReport(folder, seed, tuple(reports), monotonic() - began)


def prepare(folder: Path) -> None:
    """Write penstock.yml and the tables' definitions; what an earlier tour left is removed, all else stays.

    Raises:
        ConfigError: The folder holds something, and is not a demo's.
    """
    if folder.exists() and not (folder.is_dir() and ((folder / _MARKER).exists() or not any(folder.iterdir()))):
        raise ConfigError(f"{folder} is not empty, and no demo made it.", hint="Name a new folder, or an empty one.")
    for made in ("changefeed", "lake", "schemas"):
        if (folder / made).exists():
            shutil.rmtree(folder / made)
    for made in ("changefeed", "schemas"):
        (folder / made).mkdir(parents=True)
    (folder / _MARKER).touch()
    (folder / "penstock.yml").write_text(_CONFIG, encoding="utf-8")
    for table, ddl in DDL.items():
        (folder / "schemas" / f"{table}.sql").write_text(ddl, encoding="utf-8")


def add_files(folder: Path, told: Round) -> None:
    """Write a round's files below the feed's prefix, in their order: RESOLVED last."""
    files: list[DataFile | Resolved] = [*told.files, told.resolved]
    for file in files:
        path = folder / "changefeed" / file.path
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(file.content)


@dataclass(frozen=True, slots=True)
class _Tour:
    """What stays the same from round to round."""

    folder: Path
    spark: SparkSession
    recipe: Recipe
    say: Callable[[str], None]

    def round(self, told: Round, truth: Tables, doomed: Doomed | None) -> RoundReport:
        from penstock.pipeline import Pipeline  # noqa: PLC0415 - importing the demo must not need Spark

        began = monotonic()
        config = self.folder / "penstock.yml"
        add_files(self.folder, told)
        if doomed:
            self.say(f"Round {told.number}: a run in a process of its own is killed once `accounts` is committed.")
            doomed.run()
        self.say(f"Round {told.number}: {told.story}.")
        feed = Pipeline.from_file(config).run(self.spark).feeds[0]
        rows = {table: self._rows(table) for table in DDL}
        self.recipe.merge(told.files)
        return RoundReport(
            number=told.number,
            story=f"{told.story}, run killed" if doomed else told.story,
            killed=doomed is not None,
            watermark=feed.applied,
            resolved=str(told.resolved.at),
            repeats=told.repeats,
            rows_read=feed.total("rows_read"),
            replays=feed.total("replays"),
            collapsed=feed.total("collapsed"),
            held_files=feed.held_files,
            total=sum((row["balance"] for row in rows["accounts"]), Decimal("0.00")),
            wrong_rows=wrong_rows(rows, truth),
            recipe_total=total(self.recipe.tables["accounts"]),
            recipe_wrong_rows=sum(_differing(self.recipe.tables[table], truth[table]) for table in DDL),
            seconds=monotonic() - began,
        )

    def _rows(self, table: str) -> list[dict[str, Any]]:
        """Read a target whole; instants as microseconds, since Python would have them in the machine's zone."""
        from pyspark.sql import functions as F  # noqa: PLC0415
        from pyspark.sql.types import TimestampType  # noqa: PLC0415

        frame = self.spark.read.format("delta").load(str(self.folder / "lake" / table))
        instants = [column.name for column in frame.schema if isinstance(column.dataType, TimestampType)]
        return [row.asDict() for row in frame.withColumns({name: F.unix_micros(name) for name in instants}).collect()]


@dataclass(frozen=True, slots=True)
class Doomed:
    """A run in a process of its own that dies by SIGKILL once `accounts` is committed."""

    process: subprocess.Popen[bytes]

    @classmethod
    def start(cls, config: Path) -> Self:
        """Start the process; it waits with its Spark session for `run`."""
        return cls(
            subprocess.Popen(
                [sys.executable, "-m", "penstock.demo.doomed", str(config)],
                env={**os.environ, "PENSTOCK_FAILPOINT": "committed:accounts"},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
        )

    def run(self) -> None:
        """Let it run and die. Returns when its JVM is gone too: that holds the other end of the pipe."""
        said = self.process.communicate(b"go\n")[0].decode(errors="replace").strip()
        if self.process.returncode != -signal.SIGKILL:
            raise PenstockError(f"The run that should die by SIGKILL ended with {self.process.returncode}: {said}")

    def stop(self) -> None:
        """End it if it did not run: without its line it touches nothing."""
        if self.process.poll() is None:
            self.process.communicate()


def wrong_rows(rows: Mapping[str, list[dict[str, Any]]], truth: Tables) -> int:
    """Count rows that should not be there and rows that are missing; each column counts, and each copy of a row."""
    wrong = 0
    for table, events in truth.items():
        held = Counter(frozenset(row.items()) for row in rows[table])
        expected = Counter(frozenset(_row(event).items()) for event in events.values())
        wrong += ((held - expected) + (expected - held)).total()
    return wrong


def _row(event: Event) -> dict[str, object]:
    """Return the row of a target that an event makes."""
    return {name: _value(value) for name, value in (event.row or {}).items()} | {_UPDATED: str(event.at)}


def _value(value: object) -> object:
    if isinstance(value, datetime):
        return (value - _EPOCH) // timedelta(microseconds=1)
    return str(value) if isinstance(value, UUID) else value


def _differing(one: Mapping[tuple[object, ...], Event], other: Mapping[tuple[object, ...], Event]) -> int:
    return sum(one.get(key) != other.get(key) for key in one.keys() | other.keys())
