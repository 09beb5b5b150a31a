from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from penstock.errors import FileNameError, ParseError, PositionError
from penstock.feeds.cockroachdb.names import DataFile, ResolvedFile, directory_end, parse
from penstock.position import Hlc

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(scope="module")
def names(conformance: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((conformance / "cockroachdb" / "names.json").read_text())
    return found


def test_every_hlc_text_and_name_is_read_and_printed(names: dict[str, Any]) -> None:
    for case in names["hlc"]:
        hlc = Hlc.parse(case["text"])
        assert Hlc.from_name(case["name33"]) == hlc
        assert (str(hlc), hlc.name, str(hlc.next())) == (case["text"], case["name33"], case["next"])
        assert f"{hlc.instant:%Y-%m-%dT%H:%M:%S}.{hlc.wall % 10**9:09d}Z" == case["instant"]
        with pytest.raises(PositionError):
            Hlc.parse(case["log_form"])


def test_hlc_texts_compare_as_numbers(names: dict[str, Any]) -> None:
    for case in names["compare"]:
        a, b = Hlc.parse(case["a"]), Hlc.parse(case["b"])
        assert (a > b) - (a < b) == case["order"], case
        assert (a.sortable > b.sortable) - (a.sortable < b.sortable) == case["order"], case


def test_every_file_name_of_the_sink_is_taken_apart(names: dict[str, Any]) -> None:
    for case in names["files"]:
        parsed = parse(case["path"])
        if case["kind"] == "resolved":
            assert parsed == ResolvedFile(case["path"], Hlc.from_name(case["ts"]))
            continue
        assert parsed == DataFile(
            path=case["path"],
            lower=Hlc.from_name(case["ts"]),
            session=case["session_id"],
            node=case["node"],
            sink=case["sink"],
            file_id=case["file_id"],
            topic=case["topic"],
            schema_id=case["schema_id"],
            format=case["format"],
            compression=case["compression"],
        )


def test_every_foreign_name_is_refused_by_name(names: dict[str, Any]) -> None:
    for case in names["refused"]:
        with pytest.raises(FileNameError) as caught:
            parse(case["path"])
        assert case["path"].rsplit("/", 1)[-1] in str(caught.value)
        assert isinstance(caught.value, ValueError)


@pytest.mark.parametrize("path", ["_metadata/schema.json", "2026-02-02/.x.crc", "_SUCCESS", "2026-02-02_$folder$"])
def test_known_strangers_are_passed_over(path: str) -> None:
    assert parse(path) is None


def test_a_proposed_version_token_is_ignored() -> None:
    name = "202602022128200000000000000000000-{}56087568dba1e6b8-1-72-00000000-t-1.ndjson"
    plain, token = parse(name.format("")), parse(name.format("$001-"))
    assert isinstance(plain, DataFile)
    assert isinstance(token, DataFile)
    assert (token.topic, token.session, token.lower) == (plain.topic, plain.session, plain.lower)


@pytest.mark.parametrize(
    ("directory", "end"),
    [
        ("2026-02-02", "1770076800000000000.0000000000"),
        ("2026-02-02/21", "1770069600000000000.0000000000"),
        ("2026-02-30", None),
        ("orders", None),
        ("", None),
    ],
)
def test_a_dated_directory_ends_where_the_next_begins(directory: str, end: str | None) -> None:
    assert directory_end(directory) == (Hlc.parse(end) if end else None)


@pytest.mark.parametrize(
    "text", ["", "1.2.3", "-1.0000000000", "1770067697.320026017,2", "9" * 20, "1.9999999999", "\u0661.0"]
)
def test_what_is_no_hlc_is_refused(text: str) -> None:
    with pytest.raises(ParseError):
        Hlc.parse(text)
