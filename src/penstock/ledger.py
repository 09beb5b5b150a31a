"""The ledger: which loads were registered and consumed, over which files, and the cut that each left behind.

Three Delta tables, appended to only. `loads` has a row when a load is registered and one when it is closed (consumed,
or abandoned before any target was touched); a closing row holds the whole state after it, so the last row is enough.
Every append to `loads` carries the feed as Delta transaction and the step as its version: registering and closing are
compare-and-set, whoever comes second finds that his row is not there. The rows of `files` carry the run that wrote
them and count only if that run won.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from penstock.errors import LoadTakenError
from penstock.failpoint import reach
from penstock.load import FeedFile, FeedState, Load, TableCut
from penstock.position import Hlc
from penstock.storage import CONFLICTS, despite_conflicts, last_commit

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyspark.sql import DataFrame, Row, SparkSession


def _struct(**columns: Any) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


_TEXT, _LONG = StringType(), LongType()
_HELD = _struct(table=_TEXT, path=_TEXT, size=_LONG, lower=_TEXT)
_TABLE = _struct(
    table=_TEXT,
    start=_TEXT,
    position=_TEXT,
    target=_TEXT,
    table_id=_TEXT,
    version=_LONG,
    rows_read=_LONG,
    replays=_LONG,
    collapsed=_LONG,
    above=_LONG,
    inserted=_LONG,
    updated=_LONG,
    deleted=_LONG,
    set_aside=_LONG,
)
LOADS = _struct(
    pipeline=_TEXT,
    feed=_TEXT,
    load=_LONG,
    event=_TEXT,
    run=_TEXT,
    at=TimestampType(),
    end=_TEXT,
    files=_LONG,
    tables=ArrayType(_TABLE),
    held=ArrayType(_HELD),
)
FILES = _struct(pipeline=_TEXT, feed=_TEXT, run=_TEXT, table=_TEXT, path=_TEXT, size=_LONG, lower=_TEXT)
SET_ASIDE = _struct(
    pipeline=_TEXT,
    feed=_TEXT,
    table=_TEXT,
    key=_TEXT,
    column=_TEXT,
    text=_TEXT,
    reason=_TEXT,
    file=_TEXT,
    position=_TEXT,
    load=_LONG,
)
_SCHEMAS = {"loads": LOADS, "files": FILES, "set_aside": SET_ASIDE}
#: After this many loads the ledger's small files are put together, so that reading it does not grow with history.
_COMPACT_EVERY = 64


class Ledger:
    """The ledger of one pipeline in one folder."""

    def __init__(self, spark: SparkSession, path: str, pipeline: str) -> None:
        self._spark = spark
        self.path = path
        self._pipeline = pipeline

    def state(self, feed: str) -> FeedState:
        """Return what is known of a feed. One small Spark job; nothing is written."""
        if not self._exists("loads"):
            return FeedState()
        rows = self._of("loads", feed).orderBy(F.desc("load")).limit(3).collect()
        closed = next((row for row in rows if row.event != "registered"), None)
        last = FeedState() if closed is None else _closed(closed)
        opened = next((row for row in rows if row.event == "registered" and row.load > last.number), None)
        if opened is None:
            return last
        return replace(last, unfinished=self._unfinished(feed, opened))

    def consumed(self, feed: str, since: Hlc | None, held: Iterable[FeedFile]) -> dict[str, int]:
        """Return path and size of the files read to their end, those named from `since` on."""
        if not self._exists("files"):
            return {}
        files = self._of("files", feed)
        if since is not None:
            files = files.where(F.col("lower") >= since.sortable)
        # Two plain scans: a join would start three more jobs for the same few rows.
        won = {row.run for row in self._of("loads", feed).where(F.col("event") == "consumed").select("run").collect()}
        known = {row.path: row.size for row in files.select("run", "path", "size").collect() if row.run in won}
        for file in held:
            known.pop(file.path, None)
        return known

    def register(self, feed: str, load: Load, targets: Mapping[str, str]) -> None:
        """Write the load's files, then the load: the compare-and-set.

        Raises:
            LoadTakenError: Another run registered this load first; its files count, ours do not.
        """
        self._create()
        files = [{"pipeline": self._pipeline, "feed": feed, "run": load.run, **_file(file)} for file in load.files]
        self._append("files", files, f"{feed}/{load.run}", 1)
        reach("files-written")
        tables = [
            {"table": t, "start": _text(at), "position": str(load.end), "target": targets[t]}
            for t, at in load.starts.items()
        ]
        row = self._row(feed, load, "registered", tables)
        if not self._append("loads", [row], feed, 2 * load.number):
            raise _taken(feed, load.number)

    def close(
        self,
        feed: str,
        load: Load,
        event: str,
        cut: Iterable[TableCut],
        counts: Mapping[str, Mapping[str, int]],
        held: Iterable[FeedFile],
    ) -> None:
        """Write the load's last row, `consumed` or `abandoned`, with the whole state after it.

        Raises:
            LoadTakenError: Another run closed this load first.
        """
        tables = [
            {
                "table": one.table,
                "start": _text(load.starts.get(one.table)),
                "position": str(one.position),
                "target": one.target,
                "table_id": one.table_id,
                "version": one.version,
                **counts.get(one.table, {}),
            }
            for one in cut
        ]
        row = self._row(feed, load, event, tables, held)
        self._create()
        if not self._append("loads", [row], feed, 2 * load.number + 1):
            raise _taken(feed, load.number)
        if load.number % _COMPACT_EVERY == 0:
            self.compact()

    def set_aside(self, cells: DataFrame, feed: str, load: Load) -> None:
        """Keep cells that have no equivalent; writing the same load's twice keeps them once."""
        rows = cells.select(
            F.lit(self._pipeline).alias("pipeline"),
            F.lit(feed).alias("feed"),
            *[F.col(name) for name in ("table", "key", "column", "text", "reason", "file", "position")],
            F.lit(load.number).cast("long").alias("load"),
        )
        self._write("set_aside", rows, f"{feed}/set_aside", load.number)

    def history(self, feed: str, last: int = 20) -> list[Row]:
        """Return the closing rows of the last loads, newest first."""
        if not self._exists("loads"):
            return []
        rows = self._of("loads", feed).where(F.col("event") != "registered")
        return rows.orderBy(F.desc("load")).limit(last).collect()

    def compact(self) -> None:
        """Put the ledger's small files together; changes no row."""
        for name in _SCHEMAS:
            self._spark.sql(f"OPTIMIZE delta.`{self._at(name)}`")

    def _unfinished(self, feed: str, row: Row) -> Load:
        files = self._of("files", feed).where(F.col("run") == row.run).collect()
        return Load(
            number=row.load,
            run=row.run,
            end=Hlc.parse(row.end),
            starts={one.table: Hlc.parse(one.start) if one.start else None for one in row.tables},
            files=tuple(FeedFile(one.table, one.path, one.size, Hlc.parse(one.lower)) for one in files),
            resumed=True,
        )

    def _row(
        self,
        feed: str,
        load: Load,
        event: str,
        tables: Sequence[Mapping[str, Any]],
        held: Iterable[FeedFile] = (),
    ) -> dict[str, Any]:
        return {
            "pipeline": self._pipeline,
            "feed": feed,
            "load": load.number,
            "event": event,
            "run": load.run,
            "at": datetime.now(timezone.utc),
            "end": str(load.end),
            "files": len(load.files),
            "tables": tables,
            "held": [_file(file) for file in held],
        }

    def _append(self, name: str, rows: Sequence[Mapping[str, Any]], transaction: str, version: int) -> bool:
        """Append once per transaction and version; return False if that was done before, by whomever.

        Delta passes over such a write without a word, so a session of its own tells whether there was a commit.
        """
        own = self._spark.newSession()
        try:
            # As an Arrow table rows go to the JVM as they are; a list of them would start Python workers.
            table = pa.Table.from_pylist(list(rows), schema=to_arrow_schema(_SCHEMAS[name], timezone="UTC"))
            self._write(name, own.createDataFrame(table, _SCHEMAS[name]).coalesce(1), transaction, version)
        except CONFLICTS:
            return False
        return last_commit(own) is not None

    def _write(self, name: str, rows: DataFrame, transaction: str, version: int) -> None:
        writer = rows.write.format("delta").mode("append")
        writer = writer.option("txnAppId", f"penstock/{self._pipeline}/{transaction}").option("txnVersion", version)
        writer.save(self._at(name))

    def _create(self) -> None:
        """Make the tables that are not there yet; whoever comes second finds them made."""
        from delta import DeltaTable  # noqa: PLC0415

        for name, schema in _SCHEMAS.items():
            if self._exists(name):
                continue
            maker = DeltaTable.createIfNotExists(self._spark).location(self._at(name)).addColumns(schema)
            despite_conflicts(maker.execute)

    def _exists(self, name: str) -> bool:
        from delta import DeltaTable  # noqa: PLC0415

        return bool(DeltaTable.isDeltaTable(self._spark, self._at(name)))

    def _of(self, name: str, feed: str) -> DataFrame:
        rows = self._spark.read.format("delta").load(self._at(name))
        return rows.where((F.col("pipeline") == self._pipeline) & (F.col("feed") == feed))

    def _at(self, name: str) -> str:
        return f"{self.path}/{name}"


def _closed(row: Row) -> FeedState:
    return FeedState(
        number=row.load,
        cut={
            one.table: TableCut(one.table, Hlc.parse(one.position), one.target, one.table_id, one.version)
            for one in row.tables
        },
        held=tuple(FeedFile(one.table, one.path, one.size, Hlc.parse(one.lower)) for one in row.held),
        closed_at=row["at"].timestamp(),
    )


def _file(file: FeedFile) -> dict[str, Any]:
    return {"table": file.table, "path": file.path, "size": file.size, "lower": file.lower.sortable}


def _text(position: Hlc | None) -> str | None:
    return None if position is None else str(position)


def _taken(feed: str, number: int) -> LoadTakenError:
    return LoadTakenError(
        f"Another run took load {number}.", feed=feed, hint="Nothing was changed by this one; run again later."
    )
