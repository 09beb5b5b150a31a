"""One tuned Spark session for all tests that need one; tests without it run first, in parallel, in seconds."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, settings

from penstock.sessions import SMALL_DATA, session
from support import CONFORMANCE

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

# Spark examples take seconds: no deadline, and CI draws the same examples each time.
settings.register_profile("default", deadline=None, suppress_health_check=list(HealthCheck))
settings.register_profile("ci", parent=settings.get_profile("default"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "default")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker("spark")


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The shared session. Its zone is far from UTC on purpose: nothing may depend on it."""
    scratch = tmp_path_factory.mktemp("spark")
    started = session(
        "penstock-tests",
        jvm_log=scratch / "jvm.log",
        settings={
            "spark.sql.session.timeZone": "Pacific/Auckland",
            "spark.sql.warehouse.dir": str(scratch / "warehouse"),
            "spark.local.dir": str(scratch / "local"),
            **SMALL_DATA,
            # Rows of one key must meet: with one partition they always would.
            "spark.sql.shuffle.partitions": "2",
        },
    )
    yield started
    started.stop()


@pytest.fixture(scope="session")
def conformance() -> Path:
    """The cases from the real engines. They stand beside the project, in CI too: missing is a failure, not a skip."""
    assert CONFORMANCE.is_dir(), f"{CONFORMANCE} is missing: the conformance cases stand beside the project"
    return CONFORMANCE
