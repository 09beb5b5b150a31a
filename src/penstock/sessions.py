"""A SparkSession with Delta, tuned for one machine. On a cluster pass your own session instead."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from penstock.errors import SetupError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pyspark.sql import SparkSession

DELTA_PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
# Delta's kernel brings these along in other versions than Spark has them; every start would copy them all.
_SPARK_HAS = (
    "com.fasterxml.jackson.core",
    "com.fasterxml.jackson.datatype",
    "com.github.luben",
    "com.google.code.findbugs",
    "commons-logging",
    "commons-pool",
    "io.airlift",
    "javax.annotation",
    "org.apache.hadoop",
    "org.apache.logging.log4j",
    "org.apache.parquet",
    "org.roaringbitmap",
    "org.slf4j",
    "org.xerial.snappy",
)
_JAVA = (17, 21)
#: Settings for a short life with little data (tests, the demo): compiling and planning anew would take longer than
#: running, and G1 marks the heap at every large buffer. A quarter of the time of a small load.
SMALL_DATA = {
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m -XX:+UseParallelGC",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
}


def local_settings() -> dict[str, str]:
    """Return the settings of a local session; each is there for a measured reason."""
    cores = str(os.cpu_count() or 2)
    return {
        "spark.jars.packages": DELTA_PACKAGE,
        "spark.jars.excludes": ",".join(f"{group}:*" for group in _SPARK_HAS),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        # Delta replays its log in 50 tasks by default: most of the time of a small MERGE.
        "spark.databricks.delta.snapshotPartitions": "2",
        "spark.sql.shuffle.partitions": cores,
        # Below this many paths the driver lists by itself instead of starting a job.
        "spark.sql.sources.parallelPartitionDiscovery.threshold": "10000",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "2g",
        # Nothing listens to the outside.
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }


def session(
    name: str = "penstock",
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
    jvm_log: Path | None = None,
) -> SparkSession:
    """Return the running SparkSession, or start a local one with Delta.

    Args:
        name: The application's name.
        master: Where Spark runs.
        settings: Spark settings over `local_settings()`.
        jvm_log: Where the JVM's own talk goes (Ivy's and log4j's); None leaves it on stderr.

    Raises:
        SetupError: Java 17 or 21, or pyspark, is not there, or the JVM did not start.
    """
    try:
        from pyspark.errors import PySparkException  # noqa: PLC0415 - importing penstock must not import pyspark
        from pyspark.sql import SparkSession  # noqa: PLC0415
    except ImportError as error:
        raise SetupError("pyspark is not installed.", hint="Install penstock[spark].") from error
    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    check_java()
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in {**local_settings(), **(settings or {})}.items():
        builder = builder.config(key, value)
    with _stderr_to(jvm_log):
        try:
            spark = builder.getOrCreate()
        except PySparkException as error:
            raise SetupError(
                f"Spark did not start: {error}",
                hint=f"The JVM's own words are in {jvm_log}." if jvm_log else None,
            ) from error
    spark.sparkContext.setLogLevel("ERROR")
    return spark


def own_session(spark: SparkSession) -> SparkSession:
    """Return a new session of the same application in which nothing depends on what the caller has set."""
    own = spark.newSession()
    own.conf.set("spark.sql.session.timeZone", "UTC")
    own.conf.set("spark.sql.ansi.enabled", "true")
    own.conf.set("spark.sql.caseSensitive", "false")
    # The default, INT96, is read wrong by others before 1678 and after 2262.
    own.conf.set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS")
    return own


def jvm_log_path() -> Path:
    """Return a fresh file for the JVM's talk, outside of the work tree."""
    handle, path = tempfile.mkstemp(prefix="penstock-jvm-", suffix=".log")
    os.close(handle)
    return Path(path)


def check_java() -> str:
    """Return the version of the Java that Spark will start, or say in one sentence what is missing."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home) / "bin" / "java") if home else shutil.which("java")
    hint = "Install Java 17 (Debian: apt-get install openjdk-17-jre-headless), or point JAVA_HOME at it."
    if java is None or not Path(java).exists():
        raise SetupError("Spark needs Java 17 or 21, and none was found.", hint=hint)
    said = subprocess.run([java, "-version"], capture_output=True, text=True, check=False).stderr
    version = re.search(r'version "(\d+)[^"]*"', said)
    if version is None or int(version[1]) not in _JAVA:
        found = version[1] if version else "something else"
        raise SetupError(f"Spark needs Java 17 or 21; {java} is {found}.", hint=hint)
    return version[0].removeprefix("version ").strip('"')


@contextmanager
def _stderr_to(path: Path | None) -> Iterator[None]:
    """Let a child process that starts now inherit `path` as its stderr; ours is given back afterwards."""
    if path is None:
        yield
        return
    sys.stderr.flush()
    kept = os.dup(2)
    with path.open("ab") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, 2)
        os.close(kept)
