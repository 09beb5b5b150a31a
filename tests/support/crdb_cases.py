"""Runs the cases of `../shared/conformance/cockroachdb` through the pipeline and compares whole tables.

Targets are read by delta-rs, an independent reader: what it finds is what other engines will find.
"""

from __future__ import annotations

import datetime as dt
import json
import math
import random
import shutil
import struct
from dataclasses import dataclass, field
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import yaml
from deltalake import DeltaTable as RustTable
from pyspark.sql import SparkSession

from penstock.errors import PenstockError
from penstock.pipeline import Pipeline

if TYPE_CHECKING:
    from pathlib import Path

    import pyarrow as pa

JSON_NUMBERS = {"parse_float": str, "parse_int": str}


@dataclass(frozen=True)
class Case:
    folder: Path
    facts: dict[str, Any] = field(repr=False)

    @property
    def name(self) -> str:
        return self.folder.name

    @property
    def families(self) -> bool:
        return any("FAMILY" in text for table in self.facts["tables"].values() for text in table["ddl"].values())

    @property
    def schema_changes(self) -> bool:
        """Whether columns change; a new schema id alone (an index, a comment) does not count."""
        return any(len(set(table["ddl"].values())) > 1 for table in self.facts["tables"].values())


def cases(root: Path) -> list[Case]:
    found = [Case(path.parent, json.loads(path.read_text())) for path in sorted(root.glob("*/*/case.json"))]
    assert found, f"no cases under {root}"
    return found


def check(case: Case, spark: SparkSession, place: Path, way: str) -> None:
    """Run a case one way and raise an AssertionError that names the round.

    Ways: `rounds` (round by round), `twice` (every round twice: the second changes nothing), `batch` (all rounds at
    once), `shuffled` (files one by one in shuffled order, a run after each; RESOLVED files after the data they cover).
    """
    rounds = case.facts["rounds"]
    feed = place / "feed"
    feed.mkdir(parents=True)
    config = configure(case, place)
    before: dict[str, Any] = {}
    if way == "batch":
        for one in rounds:
            lay(case.folder / one["dir"], one["files"], feed)
        compare(case, run(config, spark), rounds[-1], place)
        return
    order = random.Random(case.name)
    for number, one in enumerate(rounds, 1):
        where = f"{case.name}, round {number} ({way})"
        files = list(one["files"])
        if way == "shuffled" and "error" not in one:
            order.shuffle(files)
            files.sort(key=lambda name: name.endswith("RESOLVED"))
            for file in files[:-1]:
                lay(case.folder / one["dir"], [file], feed)
                if not file.endswith("RESOLVED"):
                    run(config, spark)
            files = files[-1:]
        lay(case.folder / one["dir"], files, feed)
        outcome = run(config, spark)
        if "error" in one:
            assert isinstance(outcome, PenstockError), f"{where}: no error"
            assert one["error"]["names"] in str(outcome), f"{where}: {outcome}"
            assert tables(case, place) == before, f"{where}: a target changed"
            continue
        compare(case, outcome, one, place, where)
        before = tables(case, place)
        if way == "twice":
            versions = delta_versions(place)
            outcome = run(config, spark)
            assert not isinstance(outcome, PenstockError), f"{where}: {outcome}"
            assert delta_versions(place) == versions, f"{where}: a second run made a commit"


def configure(case: Case, place: Path) -> Path:
    """Write the penstock.yml of a case."""
    facts = case.facts
    configured: dict[str, Any] = {}
    for name in facts.get("select_tables") or facts["tables"]:
        table = facts["tables"][name]
        newest = max(table["ddl"], key=int)
        ddl = place / f"{len(configured)}.sql"
        ddl.write_text("".join(f"{text};\n" for text in facts["types"]) + table["ddl"][newest] + ";\n")
        configured[table["topic"]] = {"ddl": ddl.name}
        if facts.get("mode"):
            configured[table["topic"]]["mode"] = facts["mode"]
    config = place / "penstock.yml"
    feeds = {"crdb": {"kind": "cockroachdb", "path": "feed", "tables": configured}}
    document = {"name": "case", "destination": {"path": "lake"}, "feeds": feeds}
    config.write_text(yaml.safe_dump(document, allow_unicode=True, sort_keys=False))
    return config


def run(config: Path, spark: SparkSession) -> dict[str, Any] | PenstockError:
    try:
        return Pipeline.from_file(config).run(spark).to_dict()
    except PenstockError as error:
        return error


def lay(source: Path, files: list[str], feed: Path) -> None:
    for file in files:
        (feed / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source / file, feed / file)


def compare(case: Case, outcome: Any, one: dict[str, Any], place: Path, where: str | None = None) -> None:
    where = where or case.name
    if "error" in one:
        assert isinstance(outcome, PenstockError), f"{where}: no error"
        return
    assert not isinstance(outcome, PenstockError), f"{where}: {outcome}"
    assert outcome["feeds"][0]["watermark"] == one["watermark"], where
    found = tables(case, place)
    for name, expected in one["expected"].items():
        columns, rows = found.get(name, (expected["columns"], []))
        optional = set(expected.get("optional_columns", ()))
        kept = [column for column in columns if column not in optional or column in expected["columns"]]
        assert kept == expected["columns"], f"{where}: columns of {name}"
        shown = [tuple(row[columns.index(column)] for column in expected["columns"]) for row in rows]
        kinds = delta_types(case, place, name)
        wanted = [
            tuple(plain(v, kinds.get(c)) for c, v in zip(expected["columns"], row, strict=True))
            for row in expected["rows"]
        ]
        extra, missing = [row for row in shown if row not in wanted], [row for row in wanted if row not in shown]
        assert sorted(shown, key=repr) == sorted(wanted, key=repr), f"{where}, {name}: {extra=} {missing=}"
    assert set_aside(place) >= {
        (cell["table"], tuple(cell["key"]), cell["column"], cell["text"]) for cell in one.get("set_aside", ())
    }, f"{where}: set aside"


def target_path(case: Case, place: Path, table: str) -> Path:
    topic = case.facts["tables"][table]["topic"]
    return place.joinpath("lake", *[part.strip('"') for part in topic.split(".")])


def tables(case: Case, place: Path) -> dict[str, tuple[list[str], list[tuple[Any, ...]]]]:
    """Every target as columns and rows, values in a plain form that compares."""
    found = {}
    for name in case.facts["tables"]:
        path = target_path(case, place, name)
        if not (path / "_delta_log").is_dir():
            continue
        table = read(path)
        ddl = max(case.facts["tables"][name]["ddl"].items(), key=lambda item: int(item[0]))[1]
        rows = [
            tuple(shown(column, value, ddl) for column, value in zip(table.column_names, row, strict=True))
            for row in zip(*[column.to_pylist() for column in table.columns], strict=True)
        ]
        found[name] = (table.column_names, rows)
    return found


def read(path: Path) -> pa.Table:
    """Read a target by delta-rs; by Spark where columns are mapped, which delta-rs' Arrow reader does not follow."""
    rust = RustTable(str(path))
    if "delta.columnMapping.mode" in rust.metadata().configuration:
        return SparkSession.active().read.format("delta").load(str(path)).toArrow()
    return rust.to_pyarrow_table()


def delta_types(case: Case, place: Path, name: str) -> dict[str, Any]:
    path = target_path(case, place, name)
    if not (path / "_delta_log").is_dir():
        return {}
    ddl = max(case.facts["tables"][name]["ddl"].items(), key=lambda item: int(item[0]))[1]
    kinds = {one.name: element(one.type) for one in RustTable(str(path)).schema().fields}
    return {column: "jsonb" if is_jsonb(column, ddl) else kind for column, kind in kinds.items()}


def element(kind: Any) -> str:
    """The name of a type, of an array its elements'."""
    return element(kind.element_type) if hasattr(kind, "element_type") else str(kind.type)


def is_jsonb(column: str, ddl: str) -> bool:
    return f"\t{column} JSONB" in ddl


def shown(column: str, value: Any, ddl: str) -> Any:
    """A value of a target as FORMAT.md writes it."""
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(shown(column, one, ddl) for one in value)
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else value + 0.0
    if isinstance(value, bytes):
        return "0x" + value.hex()
    if isinstance(value, dt.datetime):
        utc = value.astimezone(dt.timezone.utc) if value.tzinfo else value
        return f"{utc.year:04d}-{utc:%m-%d %H:%M:%S.%f}"
    if isinstance(value, dt.date):
        return f"{value.year:04d}-{value:%m-%d}"
    if column == "__crdb__updated":
        return value.rstrip("?")
    if is_jsonb(column, ddl):
        return json.dumps(json.loads(value, **JSON_NUMBERS), sort_keys=True)
    return str(value)


def plain(value: Any, kind: Any) -> Any:
    """A value of case.json in the same form."""
    if value is None:
        return None
    if isinstance(value, list):
        return tuple(plain(one, kind) for one in value)
    if kind == "jsonb":
        return json.dumps(json.loads(value, **JSON_NUMBERS), sort_keys=True)
    if kind in ("double", "float"):
        number = float(value.replace("Infinity", "inf"))
        if kind == "float" and math.isfinite(number):
            number = struct.unpack("f", struct.pack("f", number))[0]
        return "NaN" if math.isnan(number) else number + 0.0
    return value


def set_aside(place: Path) -> set[tuple[str, tuple[str, ...], str, str]]:
    path = place / "lake" / "_penstock" / "set_aside"
    if not (path / "_delta_log").is_dir():
        return set()
    rows = RustTable(str(path)).to_pyarrow_table().to_pylist()
    return {(row["table"], tuple(json.loads(row["key"])), row["column"], row["text"]) for row in rows}


def delta_versions(place: Path) -> dict[str, int]:
    """The version of every Delta table below a folder, the ledger's too."""
    logs = (place / "lake").rglob("_delta_log")
    return {str(log.parent.relative_to(place)): RustTable(str(log.parent)).version() for log in logs}
