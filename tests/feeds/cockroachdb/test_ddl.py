"""Table definitions: one case per line. No Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from penstock.errors import DdlError
from penstock.feeds.cockroachdb.ddl import Column, Family, SqlType, TableSchema, from_columns, parse_ddl

if TYPE_CHECKING:
    from pathlib import Path

TYPES = """
BIGINT INT8 | BIGSERIAL INT8 | INT INT8 | INT8 INT8 | INT64 INT8 | INTEGER INT8 | SERIAL INT8 | SERIAL8 INT8
INT4 INT4 | SERIAL4 INT4 | INT2 INT2 | SMALLINT INT2 | SERIAL2 INT2 | SMALLSERIAL INT2
BOOL BOOL | BOOLEAN BOOL
FLOAT FLOAT8 | FLOAT8 FLOAT8 | FLOAT(25) FLOAT8 | FLOAT(24) FLOAT4 | FLOAT4 FLOAT4 | REAL FLOAT4
DECIMAL DECIMAL | DEC DECIMAL | NUMERIC DECIMAL | DECIMAL(12) DECIMAL(12,0) | NUMERIC(10,2) DECIMAL(10,2)
STRING STRING | TEXT STRING | STRING(5) STRING(5) | VARCHAR VARCHAR | VARCHAR(20) VARCHAR(20) | CHAR CHAR
CHAR(3) CHAR(3) | CHARACTER CHAR | NAME STRING | CITEXT STRING | "char" CHAR
BYTES BYTES | BYTEA BYTES | BLOB BYTES | UUID UUID | INET INET | JSON JSONB | JSONB JSONB
BIT BIT | BIT(4) BIT(4) | VARBIT VARBIT | VARBIT(8) VARBIT(8)
DATE DATE | TIME TIME | TIME(3) TIME(3) | TIMETZ TIMETZ | TIMESTAMP TIMESTAMP | TIMESTAMPTZ(6) TIMESTAMPTZ(6)
INTERVAL INTERVAL | OID OID | PG_LSN PG_LSN | REFCURSOR REFCURSOR | BOX2D BOX2D | LTREE LTREE | VECTOR(3) VECTOR(3)
INT8[] INT8[] | DECIMAL(10,2)[] DECIMAL(10,2)[] | STRING[3] STRING[] | public.mood ENUM | MOOD ENUM | mood[] ENUM[]
"""
TYPES_OF_WORDS = {
    "DOUBLE PRECISION": "FLOAT8",
    "CHARACTER VARYING": "VARCHAR",
    "CHARACTER VARYING(7)": "VARCHAR(7)",
    "CHAR VARYING": "VARCHAR",
    "BIT VARYING(3)": "VARBIT(3)",
    "TIMESTAMP WITH TIME ZONE": "TIMESTAMPTZ",
    "TIMESTAMP(3) WITH TIME ZONE": "TIMESTAMPTZ(3)",
    "TIMESTAMP(3) WITHOUT TIME ZONE": "TIMESTAMP(3)",
    "TIME WITH TIME ZONE": "TIMETZ",
    "TIME WITHOUT TIME ZONE": "TIME",
    "INTERVAL DAY TO SECOND(3)": "INTERVAL(3)",
    "STRING COLLATE en_US": "STRING",
    "STRING COLLATE en[]": "STRING[]",
    "INT8 ARRAY": "INT8[]",
    'public."Mood X"': "ENUM",
}
ENUMS = "CREATE TYPE public.mood AS ENUM ('it''s', e'a\\'b');\nCREATE TYPE db.public.\"Mood X\" AS ENUM ();\n"


@pytest.mark.parametrize(
    ("written", "meant"),
    [pair.strip().split(" ") for line in TYPES.split("\n") for pair in line.split("|") if pair.strip()]
    + [list(item) for item in TYPES_OF_WORDS.items()],
)
def test_every_spelling_of_a_type_has_one_meaning(written: str, meant: str) -> None:
    for spelling in (written, written if '"' in written else written.lower()):
        table = parse_ddl(f"{ENUMS}CREATE TABLE t (id INT8 PRIMARY KEY, c {spelling} NULL)")
        assert str(table.column("c").type) == meant
        assert table.column("c").nullable


# What stands after the type of column c -> (nullable, virtual)
QUALIFIERS = {
    "NULL": (True, False),
    "NOT NULL": (False, False),
    "NOT VISIBLE NOT NULL": (False, False),
    "NOT VISIBLE": (True, False),
    "DEFAULT NULL": (True, False),
    "NOT NULL DEFAULT unique_rowid()": (False, False),
    "DEFAULT 1:::INT8 NOT NULL": (False, False),
    "DEFAULT nextval('public.s, x'::REGCLASS) NOT NULL": (False, False),
    "DEFAULT e'NOT NULL, \\')' NULL": (True, False),
    "DEFAULT b'\\x00' ON UPDATE '\"':::STRING": (True, False),
    "DEFAULT -1.5e3": (True, False),
    "NULL AS (id + 1:::INT8) STORED": (True, False),
    "NULL AS (concat(a, ', NOT NULL')) VIRTUAL": (True, True),
    "NOT NULL AS (mod(fnv32(id), 8:::INT8)) VIRTUAL": (False, True),
    "GENERATED ALWAYS AS IDENTITY (START 3) NOT NULL": (False, False),
    "CHECK (c IS NOT NULL)": (True, False),
    "REFERENCES u (id) ON DELETE SET NULL": (True, False),
    "UNIQUE": (True, False),
    "CONSTRAINT x NOT NULL": (False, False),
    "NULL -- NOT NULL": (True, False),
    "NULL /* , NOT NULL */": (True, False),
}


@pytest.mark.parametrize(("qualifiers", "meant"), QUALIFIERS.items())
def test_what_follows_a_type(qualifiers: str, meant: tuple[bool, bool]) -> None:
    table = parse_ddl(f"CREATE TABLE t (id INT8 PRIMARY KEY, c INT8 {qualifiers}\n, d INT8)")
    assert [c.name for c in table.columns] == ["id", "c", "d"]
    assert (table.column("c").nullable, table.column("c").virtual) == meant


ELEMENTS = """
INDEX i (c ASC)
INDEX i (c DESC) STORING (d) WHERE c > 1:::INT8
UNIQUE INDEX i (lower(c) ASC)
INVERTED INDEX i (d)
VECTOR INDEX i (d)
INDEX i (c) USING HASH WITH (bucket_count=8)
UNIQUE (c, d)
CONSTRAINT x UNIQUE (c)
CONSTRAINT "check" CHECK (c > 0:::INT8)
CHECK (c IN (1:::INT8, 2:::INT8))
CONSTRAINT fk FOREIGN KEY (c) REFERENCES public.u(id) ON DELETE CASCADE NOT VALID
FOREIGN KEY (c) REFERENCES u(id)
"""


@pytest.mark.parametrize("element", ELEMENTS.strip().split("\n"))
def test_indexes_and_constraints_are_passed_over(element: str) -> None:
    columns = "id INT8 NOT NULL, c INT8 NULL, d STRING NULL, CONSTRAINT t_pkey PRIMARY KEY (id ASC)"
    assert parse_ddl(f"CREATE TABLE t ({columns}, {element})") == parse_ddl(f"CREATE TABLE t ({columns})")


OPTIONS = """
WITH (ttl = 'on', ttl_expiration_expression = e'a\\'b')
LOCALITY REGIONAL BY TABLE IN PRIMARY REGION
LOCALITY GLOBAL
PARTITION BY LIST (id) (PARTITION a VALUES IN ((1)), PARTITION b VALUES IN (DEFAULT))
; COMMENT ON TABLE public.t IS 'a;b'
; COMMENT ON COLUMN public.t.id IS 'x'; ALTER TABLE t CONFIGURE ZONE USING num_replicas = 3;
; ALTER TABLE t ADD CONSTRAINT fk FOREIGN KEY (id) REFERENCES u(id); ALTER TABLE t VALIDATE CONSTRAINT fk;
"""


@pytest.mark.parametrize("option", OPTIONS.strip().split("\n"))
def test_what_follows_the_columns_is_passed_over(option: str) -> None:
    assert parse_ddl(f"CREATE TABLE t (id INT8 PRIMARY KEY) {option}") == parse_ddl(
        "CREATE TABLE t (id INT8 PRIMARY KEY)"
    )


def test_a_whole_table() -> None:
    ddl = """CREATE TABLE public."Odd ""T"" x" (
        v STRING NULL,
        "B b" STRING NOT NULL,
        a INT8 NOT NULL,
        w INT8 NULL AS (a + 1:::INT8) VIRTUAL,
        CONSTRAINT pk PRIMARY KEY (a ASC, "B b" DESC),
        FAMILY most (v, "B b", a),
        FAMILY "only w" (w)
    )"""
    assert parse_ddl(ddl) == TableSchema(
        name='Odd "T" x',
        columns=(
            Column("v", SqlType("STRING")),
            Column("B b", SqlType("STRING"), nullable=False),
            Column("a", SqlType("INT8"), nullable=False),
            Column("w", SqlType("INT8"), virtual=True),
        ),
        primary_key=("a", "B b"),
        families=(Family("most", ("v", "B b", "a")), Family("only w", ("w",))),
    )


KEYS = {
    "id INT8 PRIMARY KEY": (("id",), None),
    "a INT8": (("rowid",), None),
    "rowid STRING": (("rowid_1",), None),
    "ID INT8, PRIMARY KEY (Id)": (("id",), None),
    '"ID" INT8, PRIMARY KEY ("ID")': (("ID",), None),
    "a INT8, b INT8, PRIMARY KEY (b DESC, a)": (("b", "a"), None),
    "id INT8, PRIMARY KEY (id ASC) USING HASH WITH (bucket_count=16)": (("id",), 0),
    "id INT8 PRIMARY KEY USING HASH": (("id",), 0),
}


@pytest.mark.parametrize(("columns", "key"), KEYS.items())
def test_primary_keys(columns: str, key: tuple[tuple[str, ...], int | None]) -> None:
    table = parse_ddl(f"CREATE TABLE t ({columns})")
    assert (table.primary_key, table.shard_at) == key
    assert not any(table.column(name).nullable for name in table.primary_key)


def test_regional_by_row_puts_the_region_before_the_key_and_the_shard() -> None:
    columns = "id INT8, crdb_region public.crdb_internal_region NOT VISIBLE NOT NULL, r STRING"
    key = "PRIMARY KEY (id ASC) USING HASH WITH (bucket_count=16)"
    table = parse_ddl(f"CREATE TABLE t ({columns}, {key}) LOCALITY REGIONAL BY ROW")
    assert (table.primary_key, table.shard_at) == (("crdb_region", "id"), 1)
    table = parse_ddl(f"CREATE TABLE t ({columns}, PRIMARY KEY (r, id)) LOCALITY REGIONAL BY ROW AS r")
    assert (table.primary_key, table.shard_at) == (("r", "id"), None)


def test_columns_without_a_family_live_in_the_first() -> None:
    table = parse_ddl("CREATE TABLE t (id INT8 PRIMARY KEY, a INT8, b INT8 FAMILY g, FAMILY f (id))")
    assert table.families == (Family("g", ("b", "a")), Family("f", ("id",)))


REFUSED = {
    "": "Expected one CREATE TABLE, found 0",
    "SELECT 1": "line 1, column 1: 'SELECT' begins no CREATE TABLE",
    "CREATE VIEW v AS SELECT 1": "'CREATE' begins no CREATE TABLE",
    "CREATE TABLE a (i INT8); CREATE TABLE b (i INT8)": "Expected one CREATE TABLE, found 2",
    "CREATE TABLE t (i INT8); ALTER TABLE t ADD COLUMN j INT8": "'ALTER' begins no CREATE TABLE",
    "CREATE TABLE t AS SELECT 1": "'AS' stands where '(' and the columns should",
    "CREATE TABLE t (i INT8": "ends too early",
    "CREATE TABLE t (i)": "')' is not the name of a type",
    "CREATE TABLE t (\n  i INT8,\n  m MONEY)": "line 3, column 5: 'MONEY' is not a type Penstock knows",
    "CREATE TABLE t (m public.mood)": "'public' is not a type Penstock knows",
    "CREATE TYPE p AS (x INT8); CREATE TABLE t (i p)": "is not AS ENUM",
    'CREATE TABLE "t (i INT8)': "cannot be read",
    "CREATE TABLE t (LIKE u)": "'LIKE' copies another table",
    "CREATE TABLE t (i INT8, PRIMARY KEY (j))": "The primary key has 'j', which is not a stored column",
    "CREATE TABLE t (i INT8, PRIMARY KEY (i, i))": "The primary key has a column twice",
    "CREATE TABLE t (i INT8 AS (1) VIRTUAL, PRIMARY KEY (i))": "not a stored column",
    "CREATE TABLE t (i INT8[] PRIMARY KEY)": "which Penstock cannot use as a key",
    "CREATE TABLE t (i INT8, FAMILY f (j))": "Family 'f' has 'j'",
    "CREATE TABLE t (i INT8, i STRING)": "Column 'i' is there twice",
    'CREATE TABLE t (i INT8, "I" STRING)': "'i' and 'I' differ only in case",
    "CREATE TABLE t (d DECIMAL(2,3))": "has scale 3, above its precision",
    "CREATE TABLE t (j JSONB[])": "no arrays of JSONB",
    "CREATE TABLE t (__crdb__updated STRING)": "name that Penstock needs",
    'CREATE TABLE t ("_CDC_Operation" STRING)': "name that Penstock needs",
    "CREATE TABLE t (_change_type STRING)": "name that Penstock needs",
    "CREATE TABLE t (_commit_version STRING)": "name that Penstock needs",
    "CREATE TABLE t (_commit_timestamp STRING)": "name that Penstock needs",
}


@pytest.mark.parametrize(("ddl", "message"), REFUSED.items())
def test_refused_with_where_and_what(ddl: str, message: str) -> None:
    with pytest.raises(DdlError) as caught:
        parse_ddl(ddl)
    assert message in caught.value.message


def test_columns_given_one_by_one() -> None:
    columns = {"id": "INT8 NOT NULL", "a.b": "DECIMAL(10,2)[]", "v": "STRING AS (x) VIRTUAL"}
    assert from_columns(columns, ["id"], name="t") == TableSchema(
        name="t",
        columns=(
            Column("id", SqlType("INT8"), nullable=False),
            Column("a.b", SqlType("DECIMAL", 10, 2, array=True)),
            Column("v", SqlType("STRING"), virtual=True),
        ),
        primary_key=("id",),
    )


@pytest.mark.parametrize(
    ("definition", "message"),
    [
        ("MONEY", "Column 'id', line 1, column 1: 'MONEY'"),
        ("INT8, x INT8", "',' is not expected"),
        ("", "ends too early"),
    ],
)
def test_a_bad_column_is_named(definition: str, message: str) -> None:
    with pytest.raises(DdlError) as caught:
        from_columns({"id": definition}, ["id"])
    assert message in caught.value.message


def test_all_definitions_of_the_conformance_cases(conformance: Path) -> None:
    parsed = 0
    for path in sorted((conformance / "cockroachdb").glob("*/*/case.json")):
        case = json.loads(path.read_text())
        for name, table in case["tables"].items():
            for ddl in table["ddl"].values():
                schema = parse_ddl(";\n".join([*case["types"], ddl]))
                assert schema.name == name.split(".")[-1].strip('"')
                parsed += 1
    assert parsed > 100


def test_reading_a_definition_needs_no_spark() -> None:
    code = "import sys, penstock.feeds.cockroachdb.ddl; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
