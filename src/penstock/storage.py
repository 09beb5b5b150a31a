"""Files on anything that Spark's Hadoop can reach: local, `s3a://`, `gs://`, `abfss://`, volumes.

The only module that touches the JVM. It goes through Hadoop's FileSystem, so credentials are the cluster's own, and
unlike Spark's readers it sees empty files and names that begin with `_` or `.`.
"""

from __future__ import annotations

import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeVar

from delta.exceptions import (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)
from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from penstock.errors import StorageError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from delta import DeltaTable
    from pyspark.sql import SparkSession

#: What Spark raises: its own errors, and the JVM's that it does not translate (failed jobs among them).
SPARK_ERRORS = (PySparkException, Py4JJavaError)
#: Another writer's commit came between. In Python these have no common class but PySparkException.
CONFLICTS = (
    ConcurrentAppendException,
    ConcurrentDeleteDeleteException,
    ConcurrentDeleteReadException,
    ConcurrentTransactionException,
    ConcurrentWriteException,
    DeltaConcurrentModificationException,
    MetadataChangedException,
    ProtocolChangedException,
)

T = TypeVar("T")
_TRIES = 6
_GLOB = re.compile(r"([\\{}\[\]*?,])")
_STATUS = re.compile(r"\{path=(?P<path>.*?); isDirectory=(?P<dir>true|false)(?:; length=(?P<size>\d+))?; ", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Entry:
    """One name in a directory; `path` is relative to the storage's root, as it is called, not URL-encoded."""

    path: str
    size: int
    is_directory: bool


class Storage:
    """The tree below one root URL."""

    def __init__(self, spark: SparkSession, root: str) -> None:
        self.root = root.rstrip("/") or root
        self._jvm: Any = spark._jvm  # noqa: SLF001 - the one seam to Hadoop; classic sessions only
        if self._jvm is None:
            raise StorageError(
                "Penstock needs a classic Spark session: Spark Connect gives no access to Hadoop's files."
            )
        self._gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
        self._conf: Any = spark._jsc.hadoopConfiguration()  # noqa: SLF001
        self._root = self._qualified()

    def list(self, directory: str = "") -> list[Entry]:
        """Return what is directly in a directory, in no order.

        A directory that is not there is empty; a missing root is an error.
        """
        where = self._path(directory)
        try:
            statuses = where.getFileSystem(self._conf).listStatus(where)
        except SPARK_ERRORS as error:
            missing = "FileNotFoundException" in str(error) or "NoSuchFile" in str(error)
            if missing and directory:
                return []
            what = "does not exist" if missing else f"cannot be listed: {_first_line(error)}"
            raise StorageError(
                f"{self.root} {what}.", hint="Check `path` in penstock.yml and the credentials."
            ) from error
        names = self._names(statuses)
        prefix = f"{directory}/" if directory else ""
        return [Entry(prefix + name.rsplit("/", 1)[-1], size, is_dir) for name, size, is_dir in names]

    def url(self, path: str) -> str:
        """Return the full name of a file, with its scheme and not URL-encoded."""
        return f"{self._root}/{path}"

    def readable(self, path: str) -> str:
        """Return the text that makes Spark's readers open exactly this file: their paths are glob patterns."""
        return _GLOB.sub(r"\\\1", f"{self.root}/{path}")

    def _qualified(self) -> str:
        root = self._path("")
        try:
            return str(root.getFileSystem(self._conf).makeQualified(root).toString()).rstrip("/")
        except SPARK_ERRORS as error:
            raise StorageError(f"{self.root} cannot be reached: {_first_line(error)}.") from error

    def _path(self, relative: str) -> Any:
        hadoop = self._jvm.org.apache.hadoop.fs.Path
        root = hadoop(self.root)
        # The three-part form takes names as they are; Path(str) would read `a:b` as a scheme.
        return hadoop(root, hadoop(None, None, relative)) if relative else root

    def _names(self, statuses: Sequence[Any]) -> Sequence[tuple[str, int, bool]]:
        """Return (path, length, is_directory) of each in Hadoop's FileStatus array.

        A call through py4j costs about 0.1 ms, so 100 000 files would take half a minute: the array is printed in one
        call and read back. Should that not give one status for each (a hostile name, an unknown print), they are asked
        one by one.
        """
        box = self._gateway.new_array(self._jvm.java.lang.Object, 1)
        box[0] = statuses
        printed = str(self._jvm.java.util.Arrays.deepToString(box))
        found = [(m["path"], int(m["size"] or 0), m["dir"] == "true") for m in _STATUS.finditer(printed)]
        if len(found) == len(statuses):
            return found
        return [(str(one.getPath().toString()), int(one.getLen()), bool(one.isDirectory())) for one in statuses]


def table_state(table: DeltaTable) -> tuple[str, int]:
    """Return id and version of a Delta table from its log; DESCRIBE would start Spark jobs for them."""
    inside: Any = table
    none = inside._spark._jvm.scala.Option.empty()  # noqa: SLF001 - Delta's Python API does not give them
    snapshot = inside._jdt.deltaLog().update(False, none, none)  # noqa: SLF001
    return str(snapshot.metadata().id()), int(snapshot.version())


def last_commit(spark: SparkSession) -> int | None:
    """Return the version of the last Delta commit that this very session made; None if it made none."""
    version = spark.conf.getAll.get("spark.databricks.delta.lastCommitVersionInSession")
    return None if version is None else int(version)


def _first_line(error: Exception) -> str:
    return next((line.strip() for line in str(error).splitlines() if ": " in line), str(error))[:300]


def despite_conflicts(action: Callable[[], T]) -> T:
    """Run an action again when another writer came between (OPTIMIZE, a second run); Delta checks everything anew."""
    for attempt in range(_TRIES):
        try:
            return action()
        except CONFLICTS as error:
            if attempt == _TRIES - 1:
                raise StorageError(f"Other writers kept coming between: {error}", hint="Run again later.") from error
            time.sleep(0.2 * 2**attempt)
    raise AssertionError("unreachable")
