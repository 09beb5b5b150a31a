from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from penstock import config
from penstock.errors import ConfigError

if TYPE_CHECKING:
    from pathlib import Path

GOOD = """\
name: shop
destination:
  path: lake
feeds:
  crdb:
    kind: cockroachdb
    path: feed
    tables:
      orders:
        ddl: schemas/orders.sql
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.yml"
    path.write_text(GOOD)
    return path


def complaint(path: Path, text: str, environment: dict[str, str] | None = None) -> str:
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        _ = config.load(path, environment or {}).ledger
    return caught.value.message


def test_defaults_are_filled_in_and_paths_stand_beside_the_file(file: Path) -> None:
    loaded = config.load(file, {})
    feed = loaded.feeds["crdb"]
    assert (loaded.name, feed.lookback, feed.tables["orders"].mode) == ("shop", timedelta(days=1), "mirror")
    assert loaded.place(feed.path) == str(file.parent / "feed")
    assert loaded.place("s3a://bucket/x") == "s3a://bucket/x"
    assert loaded.ledger == str(file.parent / "lake" / "_penstock")


def test_a_catalog_keeps_its_ledger_in_a_volume(file: Path) -> None:
    file.write_text(GOOD.replace("  path: lake", "  catalog: main\n  schema: shop"))
    assert config.load(file, {}).ledger == "/Volumes/main/shop/checkpoints"


def test_an_unknown_key_names_the_line_and_the_nearest_valid_name(file: Path) -> None:
    said = complaint(file, GOOD.replace("    path: feed", "    path: feed\n    lookbak: 2d"))
    assert said == f"{file}, line 8: unknown key `feeds.crdb.lookbak`. Did you mean `lookback`?"


def test_an_unknown_key_of_a_table_is_found_too(file: Path) -> None:
    assert "line 11: unknown key `feeds.crdb.tables.orders.mod`. Did you mean `mode`?" in complaint(
        file, GOOD + "        mod: mirror\n"
    )


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("name: shop\n", "", "`name` is missing"),
        ("  path: lake", "  catalog: main", "give either `path`, or `catalog` and `schema`"),
        ("    kind: cockroachdb", "    kind: oracle", "line 6: `feeds.crdb.kind`"),
        (
            "    path: feed",
            "    path: feed\n    lookback: soon",
            "line 8: `feeds.crdb.lookback`: expected a number and a unit",
        ),
        ("        ddl: schemas/orders.sql", "        mode: mirror", "give either `ddl`"),
        ("name: shop", "name: shop\nname: shop", "line 2: the key `name` is there twice"),
        ("name: shop", "name: shop\ncheckpoints: '  '", "`checkpoints` is empty"),
        ("path: feed", "path: ${NOT_SET}", "`feeds.crdb.path` needs ${NOT_SET}"),
        ("name: shop", "name: [", "is not YAML"),
        (GOOD, "", "holds no settings"),
    ],
)
def test_what_cannot_be_meant_is_refused(file: Path, old: str, new: str, said: str) -> None:
    assert said in complaint(file, GOOD.replace(old, new))


def test_yaml_tags_are_not_executed(file: Path) -> None:
    assert "is not YAML" in complaint(file, GOOD + "x: !!python/object/apply:os.system [true]\n")


def test_the_environment_overrides_the_file_and_fills_variables(file: Path) -> None:
    file.write_text(GOOD.replace("path: feed", "path: s3a://${BUCKET}/feed"))
    loaded = config.load(file, {"BUCKET": "b", "PENSTOCK__FEEDS__CRDB__LOOKBACK": "2h", "PENSTOCK__CHECKPOINTS": "/x"})
    assert (loaded.feeds["crdb"].path, loaded.feeds["crdb"].lookback, loaded.ledger) == (
        "s3a://b/feed",
        timedelta(hours=2),
        "/x",
    )


def test_a_wrong_override_is_said_to_come_from_the_environment(file: Path) -> None:
    said = complaint(file, GOOD, {"PENSTOCK__FEEDS__CRDB__LOOKBAK": "2h"})
    assert said.startswith("PENSTOCK__FEEDS__CRDB__LOOKBAK in the environment: unknown key `feeds.crdb.lookbak`.")


def test_the_file_is_found_by_walking_up(file: Path) -> None:
    below = file.parent / "a" / "b"
    below.mkdir(parents=True)
    assert config.find(below) == file.resolve()
