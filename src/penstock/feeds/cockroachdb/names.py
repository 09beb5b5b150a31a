"""File names of CockroachDB's cloud storage sink, parsed once into frozen values.

A data file is `<ts33>-<session>-<node>-<sink>-<fileid>-<topic>-<schema><ext>`, a RESOLVED file `<ts33>.RESOLVED`.
The topic may itself hold `-`, `.`, `+`, spaces and quotes, so names are taken apart from both ends.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from penstock.errors import FileNameError, PositionError, ResolvedNameError
from penstock.position import Hlc

_RESOLVED = ".RESOLVED"
# The `$001` token is proposed upstream (crdb#155529): accepted and ignored.
_DATA = re.compile(
    r"(?P<ts>\d{33})-(?:\$\d+-)?(?P<session>[0-9a-f]{16})-(?P<node>\d+)-(?P<sink>\d+)-(?P<file>[0-9a-f]{8,})"
    r"-(?P<topic>.+)-(?P<schema>[0-9a-f]+)\.(?P<format>ndjson|parquet|csv)(?:\.(?P<codec>gz|zst))?",
    re.ASCII | re.DOTALL,
)
_FORMATS = {"ndjson": "json", "parquet": "parquet", "csv": "csv"}
_CODECS = {"gz": "gzip", "zst": "zstd", None: None}
_DATED = re.compile(r"(?P<day>\d{4}-\d{2}-\d{2})(?:/(?P<hour>\d{2}))?", re.ASCII)


@dataclass(frozen=True, slots=True)
class DataFile:
    """A file of rows. `lower` is an inclusive lower bound of its rows' positions; there is no upper bound."""

    path: str
    lower: Hlc
    session: str
    node: int
    sink: int
    file_id: int
    topic: str
    schema_id: int
    format: str
    compression: str | None


@dataclass(frozen=True, slots=True)
class ResolvedFile:
    """A file whose name says: every row at or below `resolved` has been written."""

    path: str
    resolved: Hlc


def parse(path: str) -> DataFile | ResolvedFile | None:
    """Parse a path below the feed's prefix; None for a known stranger.

    Raises:
        ResolvedNameError: A RESOLVED file whose name is not a position.
        FileNameError: Any other name that the sink does not write.
    """
    if is_stranger(path):
        return None
    name = path.rsplit("/", 1)[-1]
    if name.upper().endswith(_RESOLVED):
        return _parse_resolved(path, name)
    match = _DATA.fullmatch(name)
    if match is None:
        raise FileNameError(
            f"{name!r} is not a file name of CockroachDB's cloud storage sink.",
            file=path,
            hint="A feed needs a prefix of its own: move the file away, or point `path` at the changefeed's prefix.",
        )
    if match["codec"] and match["format"] == "parquet":
        raise FileNameError(f"{name!r}: Parquet files carry their compression inside, not in the name.", file=path)
    try:
        lower = Hlc.from_name(match["ts"])
    except PositionError as error:
        raise FileNameError(f"{name!r}: {error.message}", file=path) from error
    return DataFile(
        path=path,
        lower=lower,
        session=match["session"],
        node=int(match["node"]),
        sink=int(match["sink"]),
        file_id=int(match["file"], 16),
        topic=match["topic"],
        schema_id=int(match["schema"], 16),
        format=_FORMATS[match["format"]],
        compression=_CODECS[match["codec"]],
    )


def is_stranger(path: str) -> bool:
    """Say whether a path is a known stranger: a hidden file or folder, or what Hadoop leaves behind.

    These are names with a leading `.` or `_` (`_SUCCESS`, `.crc`, `_metadata/…`) and `…_$folder$` markers; the sink
    writes no such names.
    """
    return any(part.startswith((".", "_")) for part in path.split("/")) or path.endswith("_$folder$")


def directory_end(directory: str) -> Hlc | None:
    """Return the first position after a dated directory (`2026-02-02`, `2026-02-02/21`); None if it is not dated."""
    match = _DATED.fullmatch(directory)
    if match is None:
        return None
    day = match["day"].replace("-", "")
    try:
        begin = Hlc.from_name(f"{day}{match['hour'] or '00'}0000" + "0" * 19)
    except PositionError:
        return None
    span = 3600 if match["hour"] else 86400
    return Hlc(begin.wall + span * 1_000_000_000)


def _parse_resolved(path: str, name: str) -> ResolvedFile:
    try:
        # A suffix in another case stays on and makes the name no position.
        return ResolvedFile(path, Hlc.from_name(name.removesuffix(_RESOLVED)))
    except PositionError as error:
        raise ResolvedNameError(
            f"{name!r} is not a RESOLVED name of CockroachDB: {error.message}.",
            file=path,
            hint="Without a sure watermark nothing is applied: remove or rename the file.",
        ) from error
