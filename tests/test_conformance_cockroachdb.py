"""Every case that CockroachDB's own encoders wrote, through the whole pipeline."""

from __future__ import annotations

import os
import time
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING

import pytest

from support import CONFORMANCE
from support.crdb_cases import Case, cases, check

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

# `twice` goes round by round too.
WAYS = ("twice", "batch", "shuffled") if os.environ.get("PENSTOCK_MATRIX") == "full" else ("rounds",)
ALL = cases(CONFORMANCE / "cockroachdb")
COVERED = [
    case
    for case in ALL
    if case.facts["feed"]["format"] == "json"
    and not case.families
    and not case.schema_changes
    and not case.facts.get("mode")
    and case.facts["feed"]["envelope"] != "enriched"
]


RUNS = [
    (case, way)
    for case in COVERED
    for way in WAYS
    if way != "batch" or not any("error" in one for one in case.facts["rounds"])
]


@pytest.fixture(scope="module")
def outcomes(
    request: pytest.FixtureRequest, spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[dict[tuple[str, str], Future[None]]]:
    """All cases in all ways, a few at a time: Spark's own waiting is most of the time of small loads."""
    root = tmp_path_factory.mktemp("crdb")
    os.environ["TZ"] = "America/New_York"
    time.tzset()
    chosen = [item.callspec.params for item in request.session.items if item.module is request.module]
    with ThreadPoolExecutor(4) as pool:
        yield {
            (one["case"].name, one["way"]): pool.submit(
                check, one["case"], spark, root / one["way"] / one["case"].name, one["way"]
            )
            for one in chosen
        }
    del os.environ["TZ"]
    time.tzset()


@pytest.mark.parametrize(("case", "way"), RUNS, ids=[f"{case.name}-{way}" for case, way in RUNS])
def test_case(case: Case, way: str, outcomes: dict[tuple[str, str], Future[None]]) -> None:
    outcomes[case.name, way].result()
