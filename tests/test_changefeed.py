"""The demo's and the tests' feed writer, against files that CockroachDB's own sink wrote."""

from __future__ import annotations

import gzip
import json
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from uuid import UUID

import pytest

from penstock.demo.changefeed import DataFile, Event, Resolved, Sink, to_json
from penstock.position import Hlc

AT = Hlc(1770067697320026017, 2)


def test_lines_read_from_cockroachdbs_own_files_are_written_back_byte_by_byte(conformance):
    written = 0
    for file in sorted((conformance / "cockroachdb").rglob("*.ndjson")):
        for line in file.read_bytes().decode().split("\n")[:-1]:
            values = json.loads(line, parse_int=Decimal, parse_float=Decimal)
            assert to_json(values) == line, file
            written += 1
    assert written > 500


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "null"),
        (True, "true"),
        (9223372036854775807, "9223372036854775807"),
        (Decimal("22.30"), "22.30"),
        (Decimal("0E-10"), "0E-10"),
        (Decimal("NaN"), '"NaN"'),
        (Decimal("-Infinity"), '"-Infinity"'),
        ('a "quote"\n', r'"a \"quote\"\n"'),
        ("naïve", '"naïve"'),
        (b"\x00\xff", r'"\\x00ff"'),
        (UUID(int=10), '"00000000-0000-0000-0000-00000000000a"'),
        (datetime(2025, 4, 1, 17, 55, 46, 800000), '"2025-04-01T17:55:46.8"'),
        (datetime(2025, 4, 1, 17, 55, 40), '"2025-04-01T17:55:40"'),
        (datetime(2025, 4, 1, 17, 0, 0, tzinfo=timezone(timedelta(hours=5))), '"2025-04-01T12:00:00Z"'),
        ({"b": [1, None], "a": ()}, '{"a": [], "b": [1, null]}'),
    ],
)
def test_a_value_is_printed_as_cockroachdb_does(value, text):
    assert to_json(value) == text


def test_a_line_is_the_wrapped_envelope():
    upsert = Event("t", (1, "x"), AT, {"b": "x", "a": 1})
    delete = Event("t", (1, "x"), AT, None)
    updated = '"key": [1, "x"], "updated": "1770067697320026017.0000000002"}'
    assert upsert.line() == '{"after": {"a": 1, "b": "x"}, ' + updated
    assert delete.line() == '{"after": null, ' + updated


@pytest.mark.parametrize(
    ("layout", "directory"), [("daily", "2026-02-02/"), ("hourly", "2026-02-02/21/"), ("flat", "")]
)
def test_names_and_directories_are_the_sinks(layout, directory):
    file = DataFile(AT, "56087568dba1e6b8", 1, 72, 255, "orders-archive", (), layout, schema=16)
    name = "202602022128173200260170000000002"
    assert file.path == f"{directory}{name}-56087568dba1e6b8-1-72-000000ff-orders-archive-10.ndjson"
    resolved = Resolved(AT, layout)
    assert (resolved.path, resolved.content) == (f"{directory}{name}.RESOLVED", b'{"resolved":"%s"}' % str(AT).encode())


def test_a_sink_counts_its_files_and_names_them_above_what_it_has_flushed():
    later = Hlc(AT.wall + 5)
    sink = Sink("56087568dba1e6b8", 1, 2, AT, compressed=True)
    first = sink.write([Event("u", (1,), later, None), Event("t", (1,), AT, None), Event("t", (2,), later, None)])
    sink.flushed(later)
    second = sink.write([Event("t", (number,), later.next(), None) for number in range(3)], rows_per_file=2)
    assert [(file.topic, file.fileid, file.lower, len(file.events)) for file in first + second] == [
        ("t", 0, AT, 2),
        ("u", 1, AT, 1),
        ("t", 2, later.next(), 2),
        ("t", 3, later.next(), 1),
    ]
    assert first[0].path.endswith("-t-1.ndjson.gz")
    assert gzip.decompress(first[1].content).decode() == f"{first[1].events[0].line()}\n"
    assert sink.write([]) == []


def test_a_sink_refuses_a_row_older_than_the_name_its_file_would_have():
    with pytest.raises(ValueError, match="older than its file's name"):
        Sink("56087568dba1e6b8", 1, 2, AT.next()).write([Event("t", (1,), AT, None)])
