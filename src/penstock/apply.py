"""Changes into Delta: the guarded MERGE of a mirror, once per load however often it is tried."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from pyspark.errors import AnalysisException
from pyspark.sql import functions as F
from pyspark.sql.types import ByteType, DecimalType, IntegerType, LongType, ShortType, StringType, StructType

from penstock.errors import HeldError, TargetError
from penstock.ordering import column, quoted, tie_error
from penstock.sessions import own_session
from penstock.storage import SPARK_ERRORS, despite_conflicts, last_commit, table_state

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from delta import DeltaTable
    from pyspark.sql import Column, DataFrame, SparkSession

# Delta cannot keep these in a column's physical name.
_NEEDS_MAPPING = frozenset(" ,;{}()\n\t=")
# Types whose literals compare exactly as Delta's file statistics do.
_PRUNES = (ByteType, ShortType, IntegerType, LongType, DecimalType, StringType)


@dataclass(frozen=True, slots=True)
class Target:
    """A Delta table that a feed's table is kept in; `identifier` is ready for SQL: a path's or a catalog's."""

    identifier: str
    path: str | None
    schema: StructType
    key: tuple[str, ...]
    position_column: str
    properties: Mapping[str, str] = field(default_factory=dict)
    partition_by: Sequence[str] = ()
    cluster_by: Sequence[str] = ()
    schema_changes: str = "evolve"


@dataclass(frozen=True, slots=True)
class Standing:
    """The identity and version of a target."""

    table_id: str
    version: int


@dataclass(frozen=True, slots=True)
class Commit:
    """The load that a target's commit belongs to: Delta refuses the same `version` of an `application` twice."""

    application: str
    version: int
    load: int
    end: str

    @property
    def tag(self) -> str:
        """The commit's `userMetadata`, by which people and retries find it again."""
        return json.dumps(
            {"penstock": self.application, "load": self.load, "end": self.end, "step": self.version % 1_000_000}
        )

    def session(self, spark: SparkSession) -> SparkSession:
        """Return a session of its own: the settings hold for every Delta write of a session."""
        own = own_session(spark)
        own.conf.set("spark.databricks.delta.write.txnAppId", self.application)
        own.conf.set("spark.databricks.delta.write.txnVersion", str(self.version))
        own.conf.set("spark.databricks.delta.commitInfo.userMetadata", self.tag)
        return own


@dataclass(frozen=True, slots=True)
class Applied:
    """What a load did to a target."""

    standing: Standing
    inserted: int
    updated: int
    deleted: int


def standing(spark: SparkSession, target: Target) -> Standing | None:
    """Return the target's identity and version, None if it is not there. Starts no job."""
    table = _open(spark, target)
    return None if table is None else Standing(*table_state(table))


def prepare(spark: SparkSession, target: Target) -> bool:
    """Make the target if it is not there; add columns that the feed has and it has not, where that is allowed.

    Returns:
        Whether the target was made just now, and so is empty.

    Raises:
        TargetError: The target cannot hold the feed's rows.
        HeldError: It lacks columns and `schema_changes` is `hold`.
    """
    table = _open(spark, target)
    if table is None:
        despite_conflicts(lambda: _create(spark, target))
        return True
    there = {one.name.lower(): one for one in table.toDF().schema}
    if target.position_column not in table.toDF().columns:
        raise TargetError(
            f"{target.identifier} has no column `{target.position_column}`: nothing tells which row is newer.",
            hint="Let Penstock make the target under another destination, or rebuild it.",
        )
    for one in target.schema:
        found = there.get(one.name.lower())
        if found is not None and found.dataType != one.dataType:
            raise TargetError(
                f"{target.identifier} has `{one.name}` as {found.dataType.simpleString()}, "
                f"the feed has {one.dataType.simpleString()}.",
                hint="A changed type needs the table rebuilt.",
            )
    missing = StructType([one for one in target.schema if one.name.lower() not in there])
    if missing.fields:
        _evolve(spark, target, missing)
    return False


def append(spark: SparkSession, target: Target, changes: DataFrame, *, commit: Commit) -> Applied:
    """Write one row per key into a target that is still empty: what `merge` would do, without its joins."""
    rows = changes.where(F.col("_change_type") != "delete").select(*[column(one.name) for one in target.schema])
    writer = rows.write.format("delta").mode("append").option("userMetadata", commit.tag)
    writer = writer.option("txnAppId", commit.application).option("txnVersion", commit.version)
    _run(lambda: writer.save(target.path) if target.path else writer.saveAsTable(target.identifier))
    return _done(spark, target, commit)


def merge(
    spark: SparkSession,
    target: Target,
    changes: DataFrame,
    *,
    commit: Commit,
    version_of: Callable[[Column], Column],
    bounds: tuple[Any, Any] | None = None,
) -> Applied:
    """MERGE one row per key into the target: delete, then update, then insert; older rows change nothing.

    Args:
        spark: The session to derive the commit's own one from.
        target: Where to; it must be there (`prepare`).
        changes: One row per key in the changes contract, keys not NULL.
        commit: The transaction; a second attempt is passed over by Delta and gives the first one's figures.
        version_of: A target's position column in the form of `_commit_version`.
        bounds: Least and greatest first key column of `changes`: as literals in ON they spare the other files.
    """
    own = commit.session(spark)

    def once() -> Any:
        table = _open(own, target)
        if table is None:
            raise _vanished(target)
        older = F.coalesce(
            version_of(F.col(f"t.{quoted(target.position_column)}")) < F.col("s._commit_version"), F.lit(True)
        )
        deleted = F.col("s._change_type") == "delete"
        values: dict[str, str | Column] = {quoted(one.name): F.col(f"s.{quoted(one.name)}") for one in target.schema}
        return (
            table.alias("t")
            .merge(changes.alias("s"), _on(target, bounds))
            .whenMatchedDelete(deleted & older)
            .whenMatchedUpdate(condition=older, set=values)
            .whenNotMatchedInsert(condition=~deleted, values=values)
            .execute()
            .head()
        )

    counts = _run(once)
    version = last_commit(own)
    if counts is None or version is None:
        return _done(spark, target, commit)
    return Applied(
        Standing(_there(spark, target).table_id, version),
        inserted=counts["num_inserted_rows"],
        updated=counts["num_updated_rows"],
        deleted=counts["num_deleted_rows"],
    )


def _on(target: Target, bounds: tuple[Any, Any] | None) -> Column:
    condition = F.lit(True)
    for name in target.key:
        condition = condition & (F.col(f"t.{quoted(name)}") == F.col(f"s.{quoted(name)}"))
    if bounds is not None and isinstance(target.schema[target.key[0]].dataType, _PRUNES):
        condition = condition & F.col(f"t.{quoted(target.key[0])}").between(*bounds)
    return condition


def _open(spark: SparkSession, target: Target) -> DeltaTable | None:
    from delta import DeltaTable  # noqa: PLC0415 - Delta's Python files come with its jar

    try:
        return DeltaTable.forName(spark, target.identifier)
    except AnalysisException as error:
        if error.getCondition() in ("DELTA_MISSING_DELTA_TABLE", "DELTA_TABLE_NOT_FOUND", "TABLE_OR_VIEW_NOT_FOUND"):
            return None
        if error.getCondition() == "DELTA_TABLE_ONLY_OPERATION":
            raise TargetError(f"{target.identifier} is there but is no Delta table.") from error
        raise


def _create(spark: SparkSession, target: Target) -> None:
    from delta import DeltaTable  # noqa: PLC0415

    maker = DeltaTable.createIfNotExists(spark).addColumns(target.schema)
    maker = maker.tableName(target.identifier) if target.path is None else maker.location(target.path)
    for name, value in _properties(target).items():
        maker = maker.property(name, value)
    if target.partition_by:
        maker = maker.partitionedBy(*target.partition_by)
    if target.cluster_by:
        maker = maker.clusterBy(*target.cluster_by)
    maker.execute()


def _properties(target: Target) -> dict[str, str]:
    odd = any(_NEEDS_MAPPING & set(one.name) for one in target.schema)
    return {**({"delta.columnMapping.mode": "name"} if odd else {}), **target.properties}


def _evolve(spark: SparkSession, target: Target, missing: StructType) -> None:
    """Add columns before the position column, which stays the last one."""
    names = ", ".join(f"`{one.name}`" for one in missing)
    if target.schema_changes != "evolve":
        raise (HeldError if target.schema_changes == "hold" else TargetError)(
            f"The feed has columns that {target.identifier} lacks: {names}.",
            hint="Set `schema_changes: evolve`, or add them by hand.",
        )
    order = target.schema.names
    for one in missing:
        at = order.index(one.name)
        place = f"AFTER {quoted(order[at - 1])}" if at else "FIRST"
        added = f"{quoted(one.name)} {one.dataType.simpleString()} {place}"
        despite_conflicts(partial(spark.sql, f"ALTER TABLE {target.identifier} ADD COLUMNS ({added})"))


def _run(action: Callable[[], Any]) -> Any:
    """Write, again after a conflict; two rows that claim one place are an error of their own."""
    try:
        return despite_conflicts(action)
    except SPARK_ERRORS as error:
        tie = tie_error(error)
        if tie is None:
            raise
        raise tie from error


def _done(spark: SparkSession, target: Target, commit: Commit) -> Applied:
    """Find a load's commit and its figures in the table's history, whichever attempt made it."""
    table = _open(spark, target)
    if table is None:
        raise _vanished(target)
    row = table.history().where(F.col("userMetadata") == commit.tag).orderBy(F.desc("version")).head()
    if row is None:
        raise TargetError(
            f"{target.identifier} already has load {commit.load} or a later one, but its history does not show it.",
            hint="The table was used with another ledger: give the pipeline another name or destination.",
        )
    figures = row["operationMetrics"]
    return Applied(
        Standing(table_state(table)[0], row["version"]),
        inserted=int(figures.get("numTargetRowsInserted", figures.get("numOutputRows", 0))),
        updated=int(figures.get("numTargetRowsUpdated", 0)),
        deleted=int(figures.get("numTargetRowsDeleted", 0)),
    )


def _there(spark: SparkSession, target: Target) -> Standing:
    found = standing(spark, target)
    if found is None:
        raise _vanished(target)
    return found


def _vanished(target: Target) -> TargetError:
    return TargetError(f"{target.identifier} vanished during the load.", hint="Put it back (undrop), and run again.")
