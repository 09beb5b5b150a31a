"""The conformance cases as decoded events, replayed in plain Python; shared by the tests of both formats."""

from __future__ import annotations

import json
import re
import struct
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf
from pyspark.sql.types import ArrayType, TimestampNTZType, TimestampType

from penstock.feeds.cockroachdb import ndjson, parquet, types
from penstock.feeds.cockroachdb.ddl import Family, TableSchema, parse_ddl
from penstock.position import Hlc

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

FORMATS = {"json": ndjson, "parquet": parquet}
SUFFIXES = {"json": (".ndjson", ".ndjson.gz", ".ndjson.zst"), "parquet": (".parquet",)}
DATA_NAME = re.compile(r"\d{33}-[0-9a-f]{16}-\d+-\d+-[0-9a-f]{8}-(?P<topic>.+)-[0-9a-f]+\.(?:ndjson|parquet)")


@dataclass
class Case:
    path: Path
    spec: dict[str, Any]
    #: (table, schema id) -> decoded rows, each with `_round` and `_family`
    events: dict[tuple[str, str], list[dict[str, Any]]] = field(default_factory=lambda: defaultdict(list))

    @property
    def name(self) -> str:
        return str(self.spec["name"])

    def schema(self, table: str, schema_id: str) -> TableSchema:
        ddl = self.spec["tables"][table]["ddl"][schema_id]
        return parse_ddl(";\n".join([*self.spec["types"], ddl]))

    def files(self, table: str) -> list[tuple[int, Path, str | None]]:
        """The data files of a table: round, path, family."""
        topic = self.spec["tables"][table]["topic"]
        found = []
        for number, round_ in enumerate(self.spec["rounds"]):
            for name in round_["files"]:
                match = DATA_NAME.match(Path(name).name)
                if match is None:
                    continue
                if match["topic"] == topic:
                    found.append((number, self.path / round_["dir"] / name, None))
                elif match["topic"].startswith(f"{topic}+"):
                    found.append((number, self.path / round_["dir"] / name, match["topic"][len(topic) + 1 :]))
        return found


def load(spark: SparkSession, conformance: Path, format_: str) -> dict[str, Case]:
    """Decode all files of all cases of a format, one Spark job per (table definition, family, mode)."""
    cases = {}
    groups: dict[tuple[TableSchema, Family | None, bool], dict[str, list[tuple[Case, str, str, int]]]] = {}
    for path in sorted((conformance / "cockroachdb").glob(f"*/*.{format_}/case.json")):
        case = Case(path.parent, json.loads(path.read_text()))
        cases[case.name if "name" in case.spec else path.parent.name] = case
        for table, spec in case.spec["tables"].items():
            for schema_id in spec["ddl"]:
                schema = case.schema(table, schema_id)
                for number, file, family_name in case.files(table):
                    family = next((f for f in schema.families if f.name == family_name), None)
                    group = groups.setdefault((schema, family, case.spec.get("mode") == "snapshot"), {})
                    group.setdefault(str(file), []).append((case, table, schema_id, number))
    module = FORMATS[format_]
    for (schema, family, snapshot), owners in groups.items():
        read = module.read(spark, list(owners), schema, family=family)
        decoded = module.decode(read, schema, family=family, snapshot=snapshot)
        for row in comparable(decoded).collect():
            event = row.asDict()
            for case, table, schema_id, number in owners[re.sub("^file:/+", "/", event["_file"])]:
                case.events[table, schema_id].append(
                    {**event, "_round": number, "_family": family.name if family else None}
                )
    return cases


def comparable(rows: DataFrame) -> DataFrame:
    """Turn timestamps into integers of microseconds in Spark: collecting them depends on this process's zone."""

    def convert(name: str, kind: object) -> Any:
        column = rows["`" + name.replace("`", "``") + "`"]
        if isinstance(kind, ArrayType) and isinstance(kind.elementType, TimestampType):
            return sf.transform(column, sf.unix_micros).alias(name)
        return (sf.unix_micros(column) if isinstance(kind, TimestampType) else column).alias(name)

    return rows.select(*(convert(f.name, f.dataType) for f in rows.schema.fields))


def text(value: Any, kind: Any) -> Any:
    """Write a decoded value as FORMAT.md does."""
    if value is None:
        return None
    if isinstance(kind, ArrayType):
        return tuple(text(element, kind.elementType) for element in value)
    if isinstance(kind, TimestampType):
        value = datetime(1970, 1, 1) + timedelta(microseconds=value)
    if isinstance(kind, (TimestampType, TimestampNTZType)):
        return value.isoformat(sep=" ", timespec="microseconds")
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (bytes, bytearray)):
        return f"0x{bytes(value).hex()}"
    return f"{value:f}" if isinstance(value, Decimal) else str(value)


def expected_text(value: Any, column: str, schema: TableSchema) -> Any:
    """Bring a text of case.json to the form that `text` gives: floats and JSON have many spellings."""
    if value is None or column == "__crdb__updated":
        return value if value is None else value.rstrip("?")
    kind = schema.column(column).type
    if kind.array:
        elements = json.loads(value) if isinstance(value, str) else value
        return tuple(None if e is None else spelled(e, kind.name) for e in elements)
    return spelled(value, kind.name)


def spelled(value: str, type_name: str) -> Any:
    if type_name in ("FLOAT4", "FLOAT8"):
        number = float(value)
        return str(struct.unpack("f", struct.pack("f", number))[0] if type_name == "FLOAT4" else number + 0.0)
    if type_name == "JSONB":
        # Numbers by their text, and apart from strings.
        return json.dumps(json.loads(value, parse_float=_number, parse_int=_number), sort_keys=True)
    return value


def _number(digits: str) -> dict[str, str]:
    return {"number": digits}


def row_text(event: dict[str, Any], column: str, schema: TableSchema) -> Any:
    if column == "__crdb__updated":
        return None if event[column] is None else event[column].rstrip("?")
    kind = schema.column(column).type
    value = text(event.get(column), types.delta_type(kind))
    if value is None:
        return None
    return (
        tuple(None if e is None else spelled(e, kind.name) for e in value) if kind.array else spelled(value, kind.name)
    )


def state(case: Case, table: str, schema_id: str, last: int) -> dict[tuple[Any, ...], dict[str, Any]]:
    """Replay a table's events up to the watermark of round `last`: key -> row."""
    schema = case.schema(table, schema_id)
    key_of = lambda event: tuple(row_text(event, name, schema) for name in schema.primary_key)  # noqa: E731
    events = case.events[table, schema_id]
    if case.spec.get("mode") == "snapshot":
        return {key_of(e): e for e in events if e["_round"] <= last}
    accepted, start = [], ""
    for number, round_ in enumerate(case.spec["rounds"][: last + 1]):
        end = Hlc.parse(round_["watermark"]).sortable if round_.get("watermark") else ""
        accepted += [e for e in events if e["_round"] <= number and start < e["_commit_version"] <= end]
        start = max(start, end)
    by_key: dict[tuple[Any, ...], list[dict[str, Any]]] = defaultdict(list)
    for event in sorted(accepted, key=lambda e: e["_commit_version"]):
        by_key[key_of(event)].append(event)
    rows = {key: replay_row(history, schema) for key, history in by_key.items()}
    return {key: row for key, row in rows.items() if row is not None}


def replay_row(history: list[dict[str, Any]], schema: TableSchema) -> dict[str, Any] | None:
    """Replay one key. Family 0 decides whether the row is there; each family's newest event has its cells."""
    first = schema.families[0].name if history[0]["_family"] else None
    newest: dict[str | None, dict[str, Any]] = {}
    born = None
    for event in history:
        newest[event["_family"]] = event
        if event["_family"] == first:
            gone = event["_cdc_operation"] == "DELETE"
            born = None if gone else born or event["_commit_version"]
    if born is None:
        return None
    row: dict[str, Any] = {}
    for event in sorted(newest.values(), key=lambda e: e["_commit_version"]):
        if event["_commit_version"] >= born:
            own = {k: v for k, v in event.items() if k in schema.primary_key or event["_cdc_operation"] == "UPSERT"}
            row.update(own)
            row["__crdb__updated"] = event["__crdb__updated"]
    return row
