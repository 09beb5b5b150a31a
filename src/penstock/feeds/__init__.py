"""Feeds: where changes come from, one package per dialect, all behind one small protocol."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyspark.sql import Column, DataFrame, SparkSession
    from pyspark.sql.types import StructType

    from penstock.load import FeedFile
    from penstock.position import Hlc

#: Columns beside the changes contract that a feed's `read` adds, for the pipeline alone.
FILE, FAULT, SET_ASIDE = "_file", "_fault", "_set_aside"


@dataclass(frozen=True, slots=True)
class TableShape:
    """What a target of a table looks like: its columns (the last one is the row's position), its key and its order."""

    schema: StructType
    key: tuple[str, ...]
    position_column: str


@dataclass(frozen=True, slots=True)
class Listing:
    """The data files of the configured tables, and how many files each other topic has."""

    files: Sequence[FeedFile]
    unconfigured: Mapping[str, int] = field(default_factory=dict)


class Feed(Protocol):
    """A prefix of change files in one dialect. Nothing here writes, and nothing knows of targets."""

    name: str

    @property
    def tables(self) -> Mapping[str, TableShape]:
        """The tables that are configured."""

    def watermark(self) -> Hlc | None:
        """Return the newest position up to which the feed says it is complete; None if it never said so."""

    def listing(self, since: Hlc | None) -> Listing:
        """List the data files; directories that end before `since` are left out."""

    def read(self, spark: SparkSession, table: str, files: Sequence[FeedFile]) -> DataFrame:
        """Return every row of the files as changes, with `_file`, `_fault` and `_set_aside`; lazy."""

    def url(self, file: FeedFile) -> str:
        """Return how `_file` spells a file."""

    def version_of(self, position: Column) -> Column:
        """Return a target's position column in the form of `_commit_version`, so that the two compare."""

    def explain_fault(self, code: str) -> tuple[str, str]:
        """Return what a fault's code means and what to do about it."""
