"""Positions: points in a feed's own time, exact and ordered; never a wall-clock timestamp, never a double."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import ClassVar

from penstock.errors import PositionError

_EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
_HLC_TEXT = re.compile(r"(?P<wall>\d{1,19})(?:\.(?P<logical>\d{1,10}))?\??")
_HLC_NAME = re.compile(r"(?P<second>\d{14})(?P<nanos>\d{9})(?P<logical>\d{10})")


@dataclass(frozen=True, order=True, slots=True)
class Hlc:
    """CockroachDB's hybrid logical clock: nanoseconds since 1970 and a logical counter, compared as numbers.

    >>> Hlc.parse("999999999999999999.0000000000") < Hlc.parse("1000000000000000000.0000000000")
    True
    """

    wall: int
    logical: int = 0

    MAX_WALL: ClassVar[int] = 2**63 - 1
    MAX_LOGICAL: ClassVar[int] = 2**31 - 1
    #: Width of `sortable`: 19 digits of wall, a point, 10 of logical.
    WIDTH: ClassVar[int] = 30

    def __post_init__(self) -> None:
        if not 0 <= self.wall <= self.MAX_WALL or not 0 <= self.logical <= self.MAX_LOGICAL:
            raise PositionError(f"{self.wall}.{self.logical} is outside the range of an HLC")

    @classmethod
    def parse(cls, text: str) -> Hlc:
        """Parse `wall.logical` as rows carry it; a missing logical part is 0, a trailing `?` (synthetic) is dropped."""
        match = _HLC_TEXT.fullmatch(text) if text.isascii() else None
        if match is None:
            hint = "Expected wall.logical, as in 1770067697320026017.0000000002."
            raise PositionError(f"{text!r} is not an HLC.", hint=hint)
        return cls(int(match["wall"]), int(match["logical"] or 0))

    @classmethod
    def read(cls, text: str) -> Hlc:
        """Read what people type: an HLC, or an ISO instant with its zone (all of its microsecond is meant)."""
        if "T" not in text and "-" not in text:
            return cls.parse(text)
        hint = "Expected an HLC, or an instant such as 2026-02-02T21:28:17Z."
        try:
            instant = datetime.fromisoformat(text.replace("Z", "+00:00"))
        except ValueError as error:
            raise PositionError(f"{text!r} is no position.", hint=hint) from error
        if instant.tzinfo is None:
            raise PositionError(f"{text!r} has no time zone.", hint=hint)
        return cls.from_instant(instant)

    @classmethod
    def from_name(cls, digits: str) -> Hlc:
        """Parse the 33 digits of a file name: UTC second (14), nanoseconds (9), logical (10)."""
        match = _HLC_NAME.fullmatch(digits) if digits.isascii() else None
        if match is None:
            raise PositionError(f"{digits!r} is not 33 digits")
        try:
            second = datetime.strptime(match["second"], "%Y%m%d%H%M%S").replace(tzinfo=timezone.utc)
        except ValueError as error:
            raise PositionError(f"{digits!r} does not begin with a date and time") from error
        seconds = int((second - _EPOCH).total_seconds())
        return cls(seconds * 1_000_000_000 + int(match["nanos"]), int(match["logical"]))

    @classmethod
    def from_instant(cls, instant: datetime) -> Hlc:
        """Return the last HLC of the microsecond `instant`, so that "as of" includes all of it."""
        micros = (instant - _EPOCH) // timedelta(microseconds=1)
        return cls(micros * 1000 + 999, cls.MAX_LOGICAL)

    @property
    def name(self) -> str:
        """The 33 digits that file names carry."""
        second = _EPOCH + timedelta(seconds=self.wall // 1_000_000_000)
        return f"{second:%Y%m%d%H%M%S}{self.wall % 1_000_000_000:09d}{self.logical:010d}"

    @property
    def sortable(self) -> str:
        """The text left-padded to one width, so that text order is HLC order."""
        return str(self).zfill(self.WIDTH)

    @property
    def instant(self) -> datetime:
        """The wall part as a UTC time, cut to microseconds: for people and partitions, never for ordering."""
        return _EPOCH + timedelta(microseconds=self.wall // 1000)

    def next(self) -> Hlc:
        """Return the successor."""
        if self.logical < self.MAX_LOGICAL:
            return Hlc(self.wall, self.logical + 1)
        return Hlc(self.wall + 1, 0)

    def minus(self, span: timedelta) -> Hlc:
        """Return the position `span` earlier, not before zero."""
        return Hlc(max(0, self.wall - span // timedelta(microseconds=1) * 1000), 0)

    def __str__(self) -> str:
        return f"{self.wall}.{self.logical:010d}"
