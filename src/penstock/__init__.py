"""Penstock: change feeds in object storage become exact Delta tables, on Spark.

Importing this package imports neither pyspark nor anything else heavy: each public name is loaded on first use.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from penstock.errors import PenstockError
    from penstock.pipeline import Pipeline
    from penstock.sessions import session

_HOME = {
    "PenstockError": "penstock.errors",
    "Pipeline": "penstock.pipeline",
    "session": "penstock.sessions",
}

__all__ = ["PenstockError", "Pipeline", "session"]


def __getattr__(name: str) -> object:
    """Load a public name from the module it lives in."""
    if name not in _HOME:
        raise AttributeError(f"module 'penstock' has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__])
