"""What can go wrong, as one tree of exceptions with stable codes.

Every message says what, where, why it matters and what to do.
The tree is in a module of its own, so that anything may import it.
"""

from __future__ import annotations

from typing import ClassVar


class PenstockError(Exception):
    """Anything Penstock refuses or cannot finish; nothing was half-written.

    Args:
        message: What happened and why it matters.
        hint: What to do about it.
        code: A stable name for this kind of error; defaults to the class's own.
        feed: The feed it happened in.
        table: The table it happened in.
        file: The file it happened in.
        key: The row's key, as text.
        spark_error_class: Spark's own condition for it, where Spark has one.
    """

    code: str = "PENSTOCK"
    exit_code: ClassVar[int] = 1

    def __init__(
        self,
        message: str,
        *,
        hint: str | None = None,
        code: str | None = None,
        feed: str | None = None,
        table: str | None = None,
        file: str | None = None,
        key: str | None = None,
        spark_error_class: str | None = None,
    ) -> None:
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code
        self.feed = feed
        self.table = table
        self.file = file
        self.key = key
        self.spark_error_class = spark_error_class
        super().__init__(message)

    def __str__(self) -> str:
        places = (("feed", self.feed), ("table", self.table), ("file", self.file), ("key", self.key))
        where = ", ".join(f"{name} {value}" for name, value in places if value is not None)
        text = f"[{self.code}] {self.message}"
        if where:
            text += f" ({where})"
        return f"{text} {self.hint}" if self.hint else text

    def at(self, *, feed: str | None = None, table: str | None = None, file: str | None = None) -> PenstockError:
        """Return itself with the places filled in that the raiser could not know."""
        self.feed = self.feed or feed
        self.table = self.table or table
        self.file = self.file or file
        return self

    def to_dict(self) -> dict[str, str]:
        """Return the error as JSON-ready fields; absent ones are left out."""
        fields = {
            "code": self.code,
            "message": self.message,
            "hint": self.hint,
            "feed": self.feed,
            "table": self.table,
            "file": self.file,
            "key": self.key,
            "spark_error_class": self.spark_error_class,
        }
        return {name: value for name, value in fields.items() if value is not None}


class ConfigError(PenstockError):
    """penstock.yml, its environment or a flag says something that cannot be meant."""

    code = "CONFIG"
    exit_code = 2


class SetupError(PenstockError):
    """The machine lacks something Penstock stands on (Java, Spark, Delta's jars)."""

    code = "SETUP"


class ParseError(PenstockError, ValueError):
    """A text that came from outside is not what its format says."""

    code = "PARSE"


class PositionError(ParseError):
    """A text that should be a position (HLC, TSO, version) is none."""

    code = "POSITION"


class FileNameError(ParseError):
    """A file below a feed's prefix has a name that is not the dialect's."""

    code = "FILE_NAME"


class ResolvedNameError(FileNameError):
    """A RESOLVED file whose name is not 33 digits; going on without a watermark would apply incomplete data."""

    code = "RESOLVED_NAME"


class DdlError(ParseError):
    """The text of a table's definition cannot be understood, or names something Penstock cannot represent."""

    code = "DDL"


class RowError(ParseError):
    """A row of a feed's file is not what the feed promises (not JSON, no `updated`, a NULL key, ...)."""

    code = "ROW"


class FileUnreadableError(PenstockError):
    """A feed's file is there but cannot be read: truncated, damaged, or another format than its name says."""

    code = "FILE_UNREADABLE"


class StorageError(PenstockError):
    """A path cannot be listed, read or written."""

    code = "STORAGE"


class OrderTieError(PenstockError):
    """Two different rows of one key claim the same position: no rule says which is newer."""

    code = "ORDER_TIE"


class ChangesError(PenstockError):
    """A DataFrame does not keep the changes contract."""

    code = "CHANGES"


class LedgerError(PenstockError):
    """The ledger says something that cannot be, or the checkpoint path is unusable."""

    code = "LEDGER"


class TargetError(PenstockError):
    """A target is not the table the last cut left behind, or cannot hold the feed's rows."""

    code = "TARGET"


class HeldError(PenstockError):
    """A person must decide before this can go on."""

    code = "HELD"
    exit_code = 5


class LoadTakenError(PenstockError):
    """Another run holds, or has just finished, this load; nothing was changed by this one."""

    code = "LOAD_TAKEN"
    exit_code = 75
