"""A CockroachDB changefeed in cloud storage, as a feed."""

from __future__ import annotations

from collections import Counter
from functools import reduce
from typing import TYPE_CHECKING

from pyspark.sql import functions as F
from pyspark.sql.types import StringType, StructField, StructType

from penstock.errors import FileNameError
from penstock.feeds import Listing, TableShape
from penstock.feeds.cockroachdb import names, ndjson, parquet, rows, types
from penstock.load import FeedFile
from penstock.position import Hlc

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession

    from penstock.feeds.cockroachdb.ddl import TableSchema
    from penstock.storage import Storage

UPDATED = "__crdb__updated"


class CockroachFeed:
    """The files below one prefix. One feed per prefix: RESOLVED files do not say whose they are."""

    def __init__(self, name: str, storage: Storage, schemas: Mapping[str, TableSchema]) -> None:
        self.name = name
        self._storage = storage
        self._schemas = schemas
        self.tables = {
            table: TableShape(_target_schema(schema), schema.primary_key, UPDATED) for table, schema in schemas.items()
        }

    def watermark(self) -> Hlc | None:
        """Return the newest RESOLVED.

        A RESOLVED file lies in the directory of its own time, so the newest dated directory that has one has the
        newest one; a flat layout is one directory.
        """
        flat, dated = self._top()
        newest = max((one.resolved for one in flat if isinstance(one, names.ResolvedFile)), default=None)
        for directory in sorted(dated, reverse=True):
            found = [one.resolved for one, _ in self._walk(directory) if isinstance(one, names.ResolvedFile)]
            if found:
                return max(found) if newest is None else max(newest, *found)
        return newest

    def listing(self, since: Hlc | None) -> Listing:
        """List the data files, in dated directories and beside them; every name is checked."""
        files: list[FeedFile] = []
        unconfigured: Counter[str] = Counter()
        for one, size in self._files(since):
            if isinstance(one, names.ResolvedFile) or (since is not None and one.lower < since):
                continue
            if one.topic not in self._schemas:
                unconfigured[one.topic] += 1
            elif one.format == "csv":
                raise FileNameError(
                    "CSV files carry neither key nor position.",
                    feed=self.name,
                    file=one.path,
                    hint="Create the feed WITH format=json or format=parquet, updated, resolved.",
                )
            else:
                files.append(FeedFile(one.topic, one.path, size, one.lower))
        return Listing(files, dict(unconfigured))

    def read(self, spark: SparkSession, table: str, files: Sequence[FeedFile]) -> DataFrame:
        """Return every row of the files as changes; each line gives a row, good or faulty."""
        schema = self._schemas[table]
        parts: list[DataFrame] = []
        for kind, decoder in (("json", ndjson), ("parquet", parquet)):
            paths = [self._storage.readable(file.path) for file in files if _parsed(file).format == kind]
            if paths:
                parts.append(decoder.decode(decoder.read(spark, paths, schema), schema))
            if paths and kind == "json":
                parts.append(ndjson.strays(spark, paths))
        return reduce(lambda one, other: one.unionByName(other, allowMissingColumns=True), parts)

    def url(self, file: FeedFile) -> str:
        """Return the file's full name as `_file` has it."""
        return self._storage.url(file.path)

    def version_of(self, position: Column) -> Column:
        """Return `__crdb__updated` without `?` and padded to one width."""
        return F.lpad(F.regexp_replace(position, r"\?$", ""), Hlc.WIDTH, "0")

    def explain_fault(self, code: str) -> tuple[str, str]:
        """Return what is wrong with a row, and what to change in CREATE CHANGEFEED."""
        return rows.FAULTS[code]

    def _files(self, since: Hlc | None) -> Iterator[tuple[names.DataFile | names.ResolvedFile, int]]:
        flat, dated = self._top()
        yield from flat.items()
        for directory, end in dated.items():
            if since is None or end > since:
                yield from self._walk(directory)

    def _top(self) -> tuple[dict[names.DataFile | names.ResolvedFile, int], dict[str, Hlc]]:
        """Return the files that lie directly under the prefix, and the dated directories with their ends."""
        flat: dict[names.DataFile | names.ResolvedFile, int] = {}
        dated: dict[str, Hlc] = {}
        for entry in self._storage.list():
            if entry.is_directory:
                end = names.directory_end(entry.path)
                if end is not None:
                    dated[entry.path] = end
                elif not names.is_stranger(entry.path):
                    raise FileNameError(
                        f"{entry.path!r} is not a directory of CockroachDB's cloud storage sink.",
                        feed=self.name,
                        file=entry.path,
                        hint="A feed needs a prefix of its own: point `path` at the changefeed's prefix.",
                    )
            elif (parsed := names.parse(entry.path)) is not None:
                flat[parsed] = entry.size
        return flat, dated

    def _walk(self, directory: str) -> Iterator[tuple[names.DataFile | names.ResolvedFile, int]]:
        for entry in self._storage.list(directory):
            if entry.is_directory:
                if names.directory_end(entry.path) is None and not names.is_stranger(entry.path):
                    raise FileNameError(
                        f"{entry.path!r} is not a directory of the sink.", feed=self.name, file=entry.path
                    )
                yield from self._walk(entry.path)
            elif (parsed := names.parse(entry.path)) is not None:
                yield parsed, entry.size


def _parsed(file: FeedFile) -> names.DataFile:
    parsed = names.parse(file.path)
    assert isinstance(parsed, names.DataFile)
    return parsed


def _target_schema(schema: TableSchema) -> StructType:
    """Return a target's columns: the table's own, then the position."""
    columns = [StructField(column.name, types.delta_type(column.type)) for column in schema.stored]
    return StructType([*columns, StructField(UPDATED, StringType())])
