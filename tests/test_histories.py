"""The random histories themselves: they keep CockroachDB's rules, and everything they promise does happen."""

from __future__ import annotations

import gzip
import json
from collections import Counter
from decimal import Decimal
from random import Random

import pytest
from hypothesis import given, settings

from histories import BEGIN, PACKED, History, Size, build, check_rules, histories, packed_histories
from oracle import replay
from penstock.demo.changefeed import DataFile, Resolved
from penstock.position import Hlc

PHENOMENA = {
    "an idle round",
    "a key given to another row",
    "a late delete of a row that lives",
    "a late file",
    "a late row that was deleted",
    "a logical part that decides",
    "a repeat in another file",
    "a repeat in the same file",
    "a replaced node that writes",
    "a row inserted again",
    "a straddling file",
    "a transaction over two tables",
    "a transaction over two tables in two rounds",
    "a round without a newer RESOLVED",
    "an older RESOLVED that comes later",
    "compressed files",
    "files above the watermark",
    "files in several days",
    "no watermark yet",
    "rows out of order in a file",
    "several nodes",
    "several sessions",
}


@given(histories())
def test_small_histories_keep_the_rules(history):
    check(history)


@given(histories(Size(recreated=True)))
def test_recreated_feeds_tell_of_new_rows_only_above_the_last_resolved(history):
    check(history, recreated=True)


@given(packed_histories())
@settings(max_examples=8)
def test_packed_histories_keep_the_rules(history):
    check(history)


@given(histories())
def test_the_newest_version_in_the_bucket_at_each_watermark_is_the_oracles(history):
    bucket = {}
    for added in history.rounds:
        bucket |= added.files
        expected = replay(history.events, added.watermark)
        assert {table: rows for table, rows in newest(bucket, added.watermark).items() if rows} == {
            table: {key: (str(at), dict(row)) for key, (at, row) in rows.items()}
            for table, rows in expected.items()
            if rows
        }


def test_the_same_seed_gives_the_same_history():
    assert build(Random(7)) == build(Random(7))
    assert build(Random(7)) != build(Random(8))


def test_every_promised_phenomenon_happens_often_enough_to_matter():
    drawn = [phenomena(build(Random(seed))) for seed in range(400)]
    seen = Counter(what for found in drawn for what in found)
    assert set(seen) == PHENOMENA
    assert {what: count for what, count in seen.items() if count < 20} == {}


def test_one_packed_history_holds_almost_everything_and_a_hundred_lives():
    history = build(Random(1), PACKED)
    assert len({(event.table, event.key) for event in history.events}) > 100
    rare = {"an idle round", "no watermark yet", "a round without a newer RESOLVED", "compressed files"}
    assert PHENOMENA - rare <= phenomena(history)


def test_a_recreated_feed_writes_new_rows_into_files_named_below_the_last_resolved():
    below = 0
    for seed in range(50):
        seen, resolved = set(), BEGIN
        for entry in build(Random(seed), Size(recreated=True)).log:
            if isinstance(entry, Resolved):
                resolved = max(resolved, entry.at)
                continue
            below += entry.lower <= resolved and any(event[:3] not in seen for event in entry.events)
            seen |= {event[:3] for event in entry.events}
    assert below > 50


def test_keys_are_in_the_order_of_the_primary_key_not_of_the_columns():
    events = [event for event in build(Random(2), PACKED).events if event.table == "orders-archive" and event.row]
    assert len(events) > 50
    assert [event.key for event in events] == [(event.row["id"], event.row["part"]) for event in events]


@pytest.mark.parametrize("until", [None, 0, 1, 2, 3])
def test_the_oracle_replays_up_to_and_including_a_position(until):
    events = [("t", 1, 3, None), ("t", 1, 1, "a"), ("t", 2, 2, "b"), ("t", 1, 1, "a"), ("u", 9, 3, "c")]
    expected = {
        None: {"t": {}, "u": {}},
        0: {"t": {}, "u": {}},
        1: {"t": {1: (1, "a")}, "u": {}},
        2: {"t": {1: (1, "a"), 2: (2, "b")}, "u": {}},
        3: {"t": {2: (2, "b")}, "u": {9: (3, "c")}},
    }
    assert replay(events, until) == expected[until]


def test_the_oracle_refuses_a_history_that_contradicts_itself():
    with pytest.raises(AssertionError, match="both"):
        replay([("t", 1, 1, "a"), ("t", 1, 1, "b")], 1)


def check(history: History, *, recreated: bool = False) -> None:
    check_rules(history.events, history.log, recreated=recreated)
    written = [(entry.path, entry.content) for entry in history.log]
    assert [file for added in history.rounds for file in added.files.items()] == written


def newest(bucket: dict[str, bytes], watermark: Hlc | None) -> dict[str, dict[tuple, tuple[str, dict]]]:
    """Read a whole bucket with nothing but the standard library: newest version of each key at the watermark."""
    found: dict[str, dict[tuple, tuple[Hlc, dict | None]]] = {}
    for path, content in bucket.items():
        if watermark is None or path.endswith(".RESOLVED"):
            continue
        table = path.rsplit("/", 1)[-1].split("-", 5)[-1].rsplit("-", 1)[0]
        text = gzip.decompress(content) if path.endswith(".gz") else content
        for line in text.decode().split("\n")[:-1]:
            change = json.loads(line, parse_float=Decimal)
            at, key = Hlc.parse(change["updated"]), tuple(change["key"])
            rows = found.setdefault(table, {})
            if at <= watermark and (key not in rows or rows[key][0] < at):
                rows[key] = (at, change["after"])
    return {
        table: {key: (str(at), row) for key, (at, row) in rows.items() if row is not None}
        for table, rows in found.items()
    }


def phenomena(history: History) -> set[str]:
    """Name what happens in a history, from its files alone."""
    found = set()
    files = [entry for entry in history.log if isinstance(entry, DataFile)]
    found |= {"several sessions" for file in files if file.session != files[0].session}
    found |= {"several nodes" for file in files if file.node != files[0].node}
    found |= {"files in several days" for file in files if file.lower.instant.date() != BEGIN.instant.date()}
    found |= {"compressed files" for file in files if file.compressed}
    found |= _of_the_source(history) | _of_the_writing(history) | _of_the_rounds(history)
    return found


def _of_the_source(history: History) -> set[str]:
    found, deleted, walls = set(), set(), {}
    for event in history.events:
        same = [other for other in history.events if other.at == event.at and other is not event]
        found |= {"a transaction over two tables" for other in same if other.table != event.table}
        if event.row is None:
            found |= {"a key given to another row" for other in same if other.table == event.table and other.row}
            deleted.add(event[:2])
        elif event[:2] in deleted:
            found.add("a row inserted again")
        if walls.setdefault((event[:2], event.at.wall), event.at) != event.at:
            found.add("a logical part that decides")
    return found


def _of_the_writing(history: History) -> set[str]:
    found, seen, resolved, sessions = set(), set(), None, []
    for entry in history.log:
        if isinstance(entry, Resolved):
            if resolved is not None and entry.at < resolved:
                found.add("an older RESOLVED that comes later")
            resolved = entry.at if resolved is None else max(resolved, entry.at)
            continue
        versions = [event[:3] for event in entry.events]
        positions = [event.at for event in entry.events]
        if len(set(versions)) < len(versions):
            found.add("a repeat in the same file")
        if seen & set(versions):
            found.add("a repeat in another file")
        if positions != sorted(positions):
            found.add("rows out of order in a file")
        if entry.sink not in sessions:
            sessions.append(entry.sink)
        elif entry.sink < max(sessions) - 3:  # at most three sinks are alive
            found.add("a replaced node that writes")
        if resolved is not None and entry.lower <= resolved:
            found.add("a late file")
            alive = replay(history.events, resolved).get(entry.topic, {})
            for event in entry.events:
                if event.at <= resolved and event.row is None and event.key in alive:
                    found.add("a late delete of a row that lives")
                if event.at <= resolved and event.row is not None and event.key not in alive:
                    found.add("a late row that was deleted")
        seen |= set(versions)
    return found


def _of_the_rounds(history: History) -> set[str]:
    found, arrived, before = set(), {}, None
    of = {entry.path: entry for entry in history.log}
    for number, added in enumerate(history.rounds):
        if not added.files:
            found.add("an idle round")
        elif added.watermark is None:
            found.add("no watermark yet")
        elif added.watermark == before:
            found.add("a round without a newer RESOLVED")
        before = added.watermark
        for path in added.files:
            if isinstance(of[path], Resolved):
                continue
            positions = {event.at for event in of[path].events}
            if before is not None and of[path].lower > before:
                found.add("files above the watermark")
            elif before is not None and min(positions) <= before < max(positions):
                found.add("a straddling file")
            for event in of[path].events:
                arrived.setdefault(event.at, {}).setdefault(event.table, number)
    if any(len(set(tables.values())) > 1 for tables in arrived.values()):
        found.add("a transaction over two tables in two rounds")
    return found
