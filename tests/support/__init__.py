"""What several test modules share."""

from __future__ import annotations

from pathlib import Path

PROJECT = Path(__file__).resolve().parent.parent.parent
CONFORMANCE = PROJECT.parent / "shared" / "conformance"
