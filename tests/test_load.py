"""Which files a load reads: decided from plain values, without Spark."""

from __future__ import annotations

from penstock.load import FeedFile, FeedState, Selection, TableCut, select
from penstock.position import Hlc

END = Hlc(1_000)


def file(path: str, lower: int = 1, size: int = 10, table: str = "t") -> FeedFile:
    return FeedFile(table, path, size, Hlc(lower))


def chosen(*listed: FeedFile, consumed: dict[str, int] | None = None, held: tuple[FeedFile, ...] = ()) -> Selection:
    return select(listed, consumed=consumed or {}, held=held, end=END, tables=["t"])


def test_a_file_that_the_ledger_does_not_know_is_read_whatever_its_name_says() -> None:
    late = file("late", lower=0)
    assert chosen(late) == Selection(new=(late,), held=(), above=(), consumed=0)


def test_a_file_read_to_its_end_is_not_read_again() -> None:
    assert chosen(file("a"), consumed={"a": 10}) == Selection((), (), (), consumed=1)


def test_a_consumed_file_of_another_size_is_read_again() -> None:
    assert chosen(file("a"), consumed={"a": 9}).new == (file("a"),)


def test_a_file_named_above_the_end_waits_and_one_named_at_the_end_does_not() -> None:
    at, above = file("at", lower=1_000), file("above", lower=1_001)
    assert chosen(at, above) == Selection(new=(at,), held=(), above=(above,), consumed=0)


def test_a_held_file_is_read_even_when_the_listing_no_longer_reaches_it() -> None:
    assert chosen(held=(file("old"),)).candidates == (file("old"),)


def test_a_held_file_that_is_listed_is_read_once() -> None:
    assert chosen(file("a"), held=(file("a"),)) == Selection((), (file("a"),), (), consumed=0)


def test_tables_that_do_not_take_part_keep_their_files() -> None:
    assert chosen(file("a", table="u"), held=(file("b", table="u"),)) == Selection((), (), (), 0)


def test_a_feed_stands_where_its_last_table_stands() -> None:
    cut = {name: TableCut(name, Hlc(at), "x") for name, at in (("a", 5), ("b", 3))}
    state = FeedState(1, cut)
    assert state.position == Hlc(3)
    assert state.starts(["a", "c"], Hlc(1)) == {"a": Hlc(5), "c": Hlc(1)}
    assert FeedState().position is None
