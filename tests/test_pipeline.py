"""The algorithm from outside: what a run does with a feed, good or bad, and what it leaves alone."""

from __future__ import annotations

import json
import shutil
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from typer.testing import CliRunner

from penstock import cli
from penstock.errors import ConfigError, PenstockError
from penstock.pipeline import Pipeline
from support.feedtree import DATED, SCHEMA, FeedTree, hlc

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

UPDATED = str(hlc(3))


@pytest.fixture
def tree(tmp_path: Path) -> FeedTree:
    return FeedTree(tmp_path, {"t": DATED})


def run(tree: FeedTree, spark: SparkSession, **options: Any) -> dict[str, Any]:
    feed: dict[str, Any] = Pipeline.from_file(tree.config).run(spark, **options).to_dict()["feeds"][0]
    return feed


def refused(tree: FeedTree, spark: SparkSession) -> PenstockError:
    with pytest.raises(PenstockError) as caught:
        run(tree, spark)
    return caught.value


def test_without_a_resolved_file_nothing_is_applied_and_nothing_is_written(tree: FeedTree, spark: SparkSession) -> None:
    tree.write("t", [(1, "a", 1)])
    report = run(tree, spark)
    assert (report["state"], report["watermark"], report["applied"]) == ("waiting", None, None)
    assert not (tree.place / "lake").exists()


def test_an_idle_run_makes_no_commit_and_a_plan_never_does(tree: FeedTree, spark: SparkSession) -> None:
    tree.write("t", [(1, "a", 1), (2, "b", 9)])
    tree.write("u", [(1, "a", 1)])
    late = tree.write("t", [(3, "c", 7)])
    tree.resolve(5)
    first = run(tree, spark)
    assert (first["state"], first["load"], first["unconfigured"]) == ("applied", 1, {"u": 1})
    before = tree.versions()

    idle = run(tree, spark)
    assert (idle["state"], idle["held_files"], idle["applied"]) == ("idle", 1, str(hlc(5)))
    tree.resolve(3)
    assert run(tree, spark)["watermark"] == str(hlc(5)), "an older RESOLVED does not take the watermark back"

    fresh = tree.write("t", [(4, "d", 6)], named=5.5)
    plan = json.loads(CliRunner().invoke(cli.app, ["plan", "-c", str(tree.config), "--output", "json"]).stdout)[
        "feeds"
    ][0]
    names = {kind: [one["path"].rsplit("/")[-1] for one in plan["files"][kind]] for kind in ("new", "held", "above")}
    assert plan["action"] == "idle"
    assert len(names["held"]) == 1
    assert sorted(names["above"]) == sorted([late.name, fresh.name])
    assert (plan["files"]["unknown"], names["new"]) == ({"u": 1}, [])

    tree.resolve(6)
    text = CliRunner().invoke(cli.app, ["plan", "-c", str(tree.config)]).stdout
    assert f"would register load 2 to {hlc(6)}: 2 files" in text
    assert tree.versions() == before


def test_status_says_where_everything_stands(tree: FeedTree, spark: SparkSession) -> None:
    tree.write("t", [(1, "a", 1), (2, "b", 9)])
    tree.resolve(5)
    run(tree, spark)
    tree.write("t", [(3, "c", 11)])
    tree.resolve(12)
    said = CliRunner().invoke(cli.app, ["status", "-c", str(tree.config), "--output", "json"])
    feed = json.loads(said.stdout)["feeds"][0]
    assert (feed["watermark"], feed["applied"]) == (str(hlc(12)), str(hlc(5)))
    assert (feed["backlog_files"], len(feed["held_files"]), feed["unfinished_load"]) == (2, 1, None)
    assert (feed["last_load"]["number"], feed["last_load"]["event"]) == (1, "consumed")
    cut = feed["cut"][0]
    assert (cut["table"], cut["position"], cut["version"]) == ("t", str(hlc(5)), 1)
    assert f"applied   {hlc(5)}" in CliRunner().invoke(cli.app, ["status", "-c", str(tree.config)]).stdout


def test_a_run_goes_no_further_than_until_and_begins_after_from(tree: FeedTree, spark: SparkSession) -> None:
    tree.write("t", [(1, "a", 1), (1, "b", 3), (2, "c", 1), (3, "d", 6)])
    tree.resolve(9)
    report = run(tree, spark, until=str(hlc(4)), first=str(hlc(2)))
    assert report["applied"] == str(hlc(4))
    assert tree.rows("t") == {1: "b"}
    run(tree, spark, until="2026-02-02T21:28:26Z")
    assert tree.rows("t") == {1: "b", 3: "d"}


BAD_LINES = {
    "ROW_NOT_JSON": ["not json", '{"after": {"id": 1', "[]", "null", "5", '{"a": 1} {"b": 2}'],
    "ROW_NO_UPDATED": ['{"after": {"id": 1, "v": "x"}, "key": [1]}'],
    "ROW_UPDATED": ['{"after": {"id": 1, "v": "x"}, "key": [1], "updated": "yesterday"}'],
    "ROW_NO_KEY": [f'{{"after": {{"id": 1, "v": "x"}}, "updated": "{UPDATED}"}}'],
    "ROW_NO_AFTER": [f'{{"key": [1], "updated": "{UPDATED}"}}'],
    "ROW_KEY_NULL": [f'{{"after": null, "key": [null], "updated": "{UPDATED}"}}'],
    "ROW_KEY_ARITY": [f'{{"after": null, "key": [1, 2], "updated": "{UPDATED}"}}'],
    "ROW_KEY_VALUE": [f'{{"after": null, "key": ["one"], "updated": "{UPDATED}"}}'],
}


def test_a_bad_line_stops_the_load_and_a_repaired_file_lets_it_go_on(tree: FeedTree, spark: SparkSession) -> None:
    tree.write("t", [(1, "a", 1)])
    tree.resolve(2)
    run(tree, spark)
    tree.write("t", [(2, "b", 3)])
    tree.resolve(5)
    before = tree.versions()["lake/t"]
    for code, lines in BAD_LINES.items():
        for line in lines:
            bad = tree.write_lines("t", [line], named=3)
            error = refused(tree, spark)
            assert (error.code, error.table, error.feed) == (code, "t", "crdb"), line
            assert error.file is not None
            assert error.file.endswith(bad.name)
            assert error.hint
            assert tree.versions()["lake/t"] == before
            bad.unlink()
    assert run(tree, spark)["state"] == "applied"
    assert tree.rows("t") == {1: "a", 2: "b"}


def test_a_name_that_is_not_the_dialects_stops_before_anything_is_registered(
    tree: FeedTree, spark: SparkSession
) -> None:
    tree.write("t", [(1, "a", 1)])
    resolved = tree.resolve(5)
    for name, code in (("123.RESOLVED", "RESOLVED_NAME"), ("foo.parquet", "FILE_NAME"), ("notes.txt", "FILE_NAME")):
        stranger = resolved.with_name(name)
        stranger.touch()
        error = refused(tree, spark)
        assert (error.code, isinstance(error, ValueError)) == (code, True)
        assert name in str(error)
        stranger.unlink()
    (tree.feed / "backup").mkdir()
    assert refused(tree, spark).code == "FILE_NAME"
    assert not (tree.place / "lake").exists()


def test_a_value_that_does_not_fit_is_set_aside_and_the_row_stays(tree: FeedTree, spark: SparkSession) -> None:
    good = f'{{"after": {{"id": 1, "v": "a", "d": "2026-02-03"}}, "key": [1], "updated": "{UPDATED}"}}'
    far = f'{{"after": {{"id": 2, "v": "b", "d": "infinity"}}, "key": [2], "updated": "{UPDATED}"}}'
    odd = f'{{"after": {{"id": 3, "v": "c", "d": "soon"}}, "key": [3], "updated": "{UPDATED}"}}'
    tree.write_lines("t", [good, far, odd], named=1)
    tree.resolve(5)
    done = CliRunner().invoke(cli.app, ["run", "-c", str(tree.config), "--output", "json"])
    assert done.exit_code == 3
    assert json.loads(done.stdout)["feeds"][0]["set_aside"] == 2
    assert tree.rows("t") == {1: "a", 2: "b", 3: "c"}
    kept = spark.read.format("delta").load(str(tree.place / "lake" / "_penstock" / "set_aside"))
    cells = {(row["key"], row["column"], row["text"], row["reason"]) for row in kept.collect()}
    assert cells == {('["2"]', "d", "infinity", "no Spark equivalent"), ('["3"]', "d", "soon", "does not fit DATE")}
    assert CliRunner().invoke(cli.app, ["run", "-c", str(tree.config)]).exit_code == 0


def test_two_rows_of_one_key_at_one_position_are_refused_with_the_key(tree: FeedTree, spark: SparkSession) -> None:
    tree.write("t", [(7, "a", 1), (7, "b", 1)])
    tree.resolve(5)
    error = refused(tree, spark)
    assert (error.code, error.key, error.table) == ("ORDER_TIE", '["7"]', "t")
    assert tree.rows("t") == {}


def test_a_target_that_is_not_the_last_cuts_stops_the_run(tree: FeedTree, spark: SparkSession) -> None:
    tree.write("t", [(1, "a", 1)])
    tree.resolve(2)
    run(tree, spark)
    tree.write("t", [(1, "b", 3)])
    tree.resolve(4)
    kept = tree.place / "kept"
    shutil.move(tree.target("t"), kept)
    assert "is gone" in refused(tree, spark).message
    spark.range(3).write.format("delta").save(str(tree.target("t")))
    assert "is another table" in refused(tree, spark).message
    shutil.rmtree(tree.target("t"))
    shutil.move(kept, tree.target("t"))
    assert run(tree, spark)["state"] == "applied"
    assert tree.rows("t") == {1: "b"}


def test_a_target_without_the_position_is_refused(tree: FeedTree, spark: SparkSession) -> None:
    spark.createDataFrame([(1, "a")], "id long, v string").write.format("delta").save(str(tree.target("t")))
    tree.write("t", [(1, "a", 1)])
    tree.resolve(2)
    error = refused(tree, spark)
    assert (error.code, "__crdb__updated" in error.message) == ("TARGET", True)
    assert tree.versions()["lake/t"] == 0


@pytest.mark.parametrize("table", ["../t", "/t", "..", "a/../../t", "_penstock", "a\\b", ""])
def test_a_table_cannot_lie_outside_of_the_destination(table: str, tmp_path: Path, spark: SparkSession) -> None:
    tree = FeedTree(tmp_path, {"t": SCHEMA})
    document = yaml.safe_load(tree.config.read_text())
    document["feeds"]["crdb"]["tables"] = {table: {"ddl": "t.sql"}}
    tree.config.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError):
        Pipeline.from_file(tree.config).plan(spark)


def test_a_feed_that_is_not_there_is_said_to_be_missing(tree: FeedTree, spark: SparkSession) -> None:
    shutil.rmtree(tree.feed)
    error = refused(tree, spark)
    assert (error.code, "does not exist" in error.message) == ("STORAGE", True)
