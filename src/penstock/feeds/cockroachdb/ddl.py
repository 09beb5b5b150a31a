"""Table definitions as `SHOW CREATE TABLE` prints them, into the values of `schema`.

Only sqlglot's tokenizer is used: its grammar does not know CockroachDB's families, sharding and localities,
and decoding needs no more of a definition than its columns, key and families.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

from sqlglot.errors import TokenError
from sqlglot.tokenizer_core import TokenType
from sqlglot.tokens import Tokenizer

from penstock.errors import DdlError
from penstock.feeds.cockroachdb.schema import Column, Family, SqlType, TableSchema, table_schema

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from sqlglot.tokenizer_core import Token

__all__ = ["Column", "Family", "SqlType", "TableSchema", "from_columns", "parse_ddl"]

# Every spelling CockroachDB accepts, one canonical name each. FLOAT(n), `"char"` and enums are seen to in `_scalar`.
_ALIASES = {
    "BIGINT": "INT8",
    "BIGSERIAL": "INT8",
    "BIT": "BIT",
    "BIT VARYING": "VARBIT",
    "BLOB": "BYTES",
    "BOOL": "BOOL",
    "BOOLEAN": "BOOL",
    "BOX2D": "BOX2D",
    "BYTEA": "BYTES",
    "BYTES": "BYTES",
    "CHAR": "CHAR",
    "CHAR VARYING": "VARCHAR",
    "CHARACTER": "CHAR",
    "CHARACTER VARYING": "VARCHAR",
    "CITEXT": "STRING",
    "DATE": "DATE",
    "DEC": "DECIMAL",
    "DECIMAL": "DECIMAL",
    "DOUBLE PRECISION": "FLOAT8",
    "FLOAT": "FLOAT8",
    "FLOAT4": "FLOAT4",
    "FLOAT8": "FLOAT8",
    "GEOGRAPHY": "GEOGRAPHY",
    "GEOMETRY": "GEOMETRY",
    "INET": "INET",
    "INT": "INT8",
    "INT2": "INT2",
    "INT4": "INT4",
    "INT64": "INT8",
    "INT8": "INT8",
    "INTEGER": "INT8",
    "INTERVAL": "INTERVAL",
    "JSON": "JSONB",
    "JSONB": "JSONB",
    "JSONPATH": "JSONPATH",
    "LTREE": "LTREE",
    "NAME": "STRING",
    "NUMERIC": "DECIMAL",
    "OID": "OID",
    "PG_LSN": "PG_LSN",
    "REAL": "FLOAT4",
    "REFCURSOR": "REFCURSOR",
    "SERIAL": "INT8",
    "SERIAL2": "INT2",
    "SERIAL4": "INT4",
    "SERIAL8": "INT8",
    "SMALLINT": "INT2",
    "SMALLSERIAL": "INT2",
    "STRING": "STRING",
    "TEXT": "STRING",
    "TIME": "TIME",
    "TIMESTAMP": "TIMESTAMP",
    "TIMESTAMPTZ": "TIMESTAMPTZ",
    "TIMETZ": "TIMETZ",
    "TSQUERY": "TSQUERY",
    "TSVECTOR": "TSVECTOR",
    "UUID": "UUID",
    "VARBIT": "VARBIT",
    "VARCHAR": "VARCHAR",
    "VECTOR": "VECTOR",
}
_SECOND_WORDS = {"VARYING", "PRECISION"}
_INTERVAL_WORDS = {"YEAR", "MONTH", "DAY", "HOUR", "MINUTE", "SECOND", "TO"}
# FLOAT(n) is single precision up to here.
_SINGLE_BITS = 24
# What may follow a CREATE TABLE without changing its columns.
_HARMLESS_ALTER = {"CONFIGURE", "FOREIGN", "SPLIT", "VALIDATE"}


def parse_ddl(text: str) -> TableSchema:
    """Parse one CREATE TABLE, after the CREATE TYPE ... AS ENUM statements of its enums.

    Raises:
        DdlError: It is something else, or names something that Penstock cannot represent.
    """
    parser = _Parser(text)
    tables = []
    while parser.more():
        table = parser.statement()
        if table is not None:
            tables.append(table)
        parser.end_of_statement()
    if len(tables) != 1:
        raise DdlError(
            f"Expected one CREATE TABLE, found {len(tables)}.",
            hint="Give what SHOW CREATE TABLE prints, after the CREATE TYPE statements of the table's enums.",
        )
    return tables[0]


def from_columns(columns: Mapping[str, str], primary_key: Sequence[str], *, name: str = "") -> TableSchema:
    """Build a schema from `{"id": "INT8 NOT NULL", ...}`, each value as it would stand in a CREATE TABLE.

    Raises:
        DdlError: As `parse_ddl`.
    """
    table = _Table(name)
    for column, definition in columns.items():
        parser = _Parser(definition, f"Column {column!r}, ")
        table.add(column, parser)
        parser.end()
    if primary_key:
        table.primary_key = list(primary_key)
    return table.build()


class _Tokenizer(Tokenizer):
    """CockroachDB's lexical rules; no keywords, as which words are special depends on where they stand."""

    QUOTES: ClassVar[list[tuple[str, str] | str]] = ["'"]
    IDENTIFIERS: ClassVar[list[str | tuple[str, str]]] = ['"']
    STRING_ESCAPES: ClassVar[list[str]] = ["'"]
    BYTE_STRINGS: ClassVar[list[str | tuple[str, str]]] = [(f"{prefix}'", "'") for prefix in "eEbB"]
    BYTE_STRING_ESCAPES: ClassVar[list[str]] = ["'", "\\"]
    COMMENTS: ClassVar[list[str | tuple[str, str]]] = ["--", ("/*", "*/")]
    KEYWORDS: ClassVar[dict[str, TokenType]] = {}


class _Table:
    """A table while it is being read."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.columns: list[Column] = []
        self.primary_key: list[str] = []
        self.families: dict[str, list[str]] = {}
        self.sharded = False
        self.region: str | None = None

    def build(self) -> TableSchema:
        """Check the whole and freeze it."""
        return table_schema(
            self.name,
            self.columns,
            self.primary_key,
            families=self.families,
            region=self.region,
            sharded=self.sharded,
        )

    def add(self, name: str, parser: _Parser) -> None:
        """Read a column's type and what follows it."""
        kind = parser.type()
        nullable, virtual = True, False
        for word in parser.words_of_element():
            if word == "NOT" and parser.take("NULL"):
                nullable = False
            elif word == "VIRTUAL":
                virtual = True
            elif word == "PRIMARY" and parser.take("KEY"):
                self.primary_key = [name]
            elif word == "HASH":
                self.sharded = True
            elif word == "FAMILY":
                self.families.setdefault(parser.name("a family"), []).append(name)
        self.columns.append(Column(name, kind, nullable, virtual))


class _Parser:
    """A reader of tokens; each method takes what it reads."""

    def __init__(self, text: str, where: str = "") -> None:
        self._where = where
        try:
            self._tokens: list[Token] = _Tokenizer().tokenize(text)
        except TokenError as error:
            raise DdlError(
                f"{where}The definition cannot be read: {error}.", hint="A quote is probably not closed."
            ) from error
        self._at = 0
        self._enums = {"crdb_internal_region"}

    def more(self) -> bool:
        return self._at < len(self._tokens)

    def statement(self) -> TableSchema | None:
        """Read one statement; the schema if it is the CREATE TABLE, None if it is one that may stand beside it."""
        start = self._at
        if self.take("CREATE"):
            if self.take("TYPE"):
                self._enum()
                return None
            for word in ("UNLOGGED", "LOCAL", "GLOBAL", "TEMPORARY", "TEMP"):
                self.take(word)
            if self.take("TABLE"):
                return self._table()
        elif self._word() == "COMMENT" or (self._word() == "ALTER" and self._statement_has(_HARMLESS_ALTER)):
            self._skip_statement()
            return None
        self._at = start
        return self._fail(
            "begins no CREATE TABLE", "Give what SHOW CREATE TABLE prints, after its CREATE TYPE statements."
        )

    def end_of_statement(self) -> None:
        """Take the semicolons after a statement."""
        if self.more():
            self._expect(TokenType.SEMICOLON, "';'")
        while self._take_type(TokenType.SEMICOLON):
            pass

    def end(self) -> None:
        """Insist that everything was read."""
        if self.more():
            self._fail("is not expected here")

    def take(self, word: str) -> bool:
        """Take an unquoted word, if it is next."""
        if self._word() != word:
            return False
        self._at += 1
        return True

    def name(self, what: str) -> str:
        """Take an identifier, quoted or not. CockroachDB folds unquoted ones to lower case."""
        token = self._peek()
        if token is None or token.token_type not in (TokenType.VAR, TokenType.IDENTIFIER):
            self._fail(f"is not the name of {what}")
        self._at += 1
        return token.text if token.token_type == TokenType.IDENTIFIER else token.text.lower()

    def type(self) -> SqlType:
        """Take a column's type."""
        start = self._at
        scalar = self._scalar()
        array = False
        while True:
            if self.take("COLLATE"):
                self.name("a collation")
            elif self.take("ARRAY"):
                array = True
            elif self._take_type(TokenType.L_BRACKET):
                self._take_type(TokenType.NUMBER)
                self._expect(TokenType.R_BRACKET, "']'")
                array = True
            else:
                break
        if array and scalar.name == "JSONB":
            self._at = start
            self._fail("cannot be an array: CockroachDB has no arrays of JSONB")
        return SqlType(scalar.name, scalar.precision, scalar.scale, array)

    def words_of_element(self) -> Iterator[str]:
        """Yield the unquoted words up to the end of this element, outside of parentheses; the caller may take more."""
        depth = 0
        while (token := self._peek()) is not None:
            if depth == 0 and token.token_type in (TokenType.COMMA, TokenType.R_PAREN, TokenType.SEMICOLON):
                return
            depth += {TokenType.L_PAREN: 1, TokenType.R_PAREN: -1}.get(token.token_type, 0)
            word = self._word()
            self._at += 1
            if depth == 0 and word is not None:
                yield word

    def _enum(self) -> None:
        if self.take("IF"):
            self._at += 2
        name = self._qualified("a type")
        if not (self.take("AS") and self.take("ENUM")):
            self._fail("is not AS ENUM", "Composite types are not supported: leave their columns out of the feed.")
        self._enums.add(name)
        self._skip_statement()

    def _table(self) -> TableSchema:
        if self.take("IF"):
            self._at += 2
        table = _Table(self._qualified("a table"))
        self._expect(TokenType.L_PAREN, "'(' and the columns")
        while True:
            self._element(table)
            if not self._take_type(TokenType.COMMA):
                break
        self._expect(TokenType.R_PAREN, "',' or ')'")
        self._options(table)
        return table.build()

    def _element(self, table: _Table) -> None:
        """Read a column, or one of the other things that stand between a table's parentheses."""
        word, following = self._word(), self._word(1)
        if word == "CONSTRAINT":
            self._at += 1
            self.name("a constraint")
            word, following = self._word(), self._word(1)
        if (word, following) == ("PRIMARY", "KEY"):
            self._at += 2
            table.primary_key = self._names("a key column")
            table.sharded = "HASH" in set(self.words_of_element())
        elif word == "FAMILY":
            self._at += 1
            unnamed = (token := self._peek()) is not None and token.token_type == TokenType.L_PAREN
            name = f"fam_{len(table.families)}" if unnamed else self.name("a family")
            table.families[name] = self._names("a family's column")
        elif word in ("INDEX", "UNIQUE", "CHECK", "FOREIGN", "EXCLUDE") or (
            word in ("INVERTED", "VECTOR") and following == "INDEX"
        ):
            for _ in self.words_of_element():
                pass
        elif word == "LIKE":
            self._fail("copies another table", "Give what SHOW CREATE TABLE prints: it has the columns themselves.")
        else:
            table.add(self.name("a column"), self)

    def _options(self, table: _Table) -> None:
        """Read what follows the columns; only REGIONAL BY ROW matters: its column leads the key unseen."""
        words: list[str] = []
        while (token := self._peek()) is not None and token.token_type != TokenType.SEMICOLON:
            words.append(self._word() or "")
            self._at += 1
            if words[-4:] == ["LOCALITY", "REGIONAL", "BY", "ROW"]:
                table.region = self.name("the region's column") if self.take("AS") else "crdb_region"

    def _scalar(self) -> SqlType:
        start = self._at
        if self._is_type(TokenType.IDENTIFIER) and self._tokens[start].text == "char":
            self._at += 1
            return SqlType("CHAR")
        word = self._word() or ""
        if self._word(1) in _SECOND_WORDS and f"{word} {self._word(1)}" in _ALIASES:
            word += f" {self._word(1)}"
            self._at += 1
        if word not in _ALIASES or self._is_type(TokenType.DOT, 1):
            return self._enum_type()
        self._at += 1
        name = _ALIASES[word]
        while name == "INTERVAL" and self._word() in _INTERVAL_WORDS:
            self._at += 1
        numbers = self._numbers()
        if name in ("TIME", "TIMESTAMP") and self._word() in ("WITH", "WITHOUT") and self._word(1) == "TIME":
            name += "TZ" if self.take("WITH") else ""
            _ = self.take("WITHOUT"), self.take("TIME"), self.take("ZONE")
        if word == "FLOAT" and numbers:
            return SqlType("FLOAT4" if numbers[0] <= _SINGLE_BITS else "FLOAT8")
        if name == "DECIMAL" and numbers:
            numbers = [*numbers, 0][:2]
            if numbers[1] > numbers[0]:
                self._at = start
                self._fail(f"has scale {numbers[1]}, above its precision")
        return SqlType(name, numbers[0] if numbers else None, numbers[1] if len(numbers) > 1 else None)

    def _enum_type(self) -> SqlType:
        """Take the name of an enum that was declared before."""
        start = self._at
        if self._qualified("a type") in self._enums:
            return SqlType("ENUM")
        self._at = start
        return self._fail(
            "is not a type Penstock knows",
            "If it is an enum, put its CREATE TYPE before the CREATE TABLE, or declare the column as STRING.",
        )

    def _numbers(self) -> list[int]:
        """Take `(10,2)`; words in it, as in GEOMETRY(POINT,4326), say nothing about the values."""
        numbers: list[int] = []
        if self._take_type(TokenType.L_PAREN):
            while not self._take_type(TokenType.R_PAREN):
                token = self._peek()
                if token is None:
                    self._fail("ends before its ')'")
                if token.token_type == TokenType.NUMBER and token.text.isdecimal():
                    numbers.append(int(token.text))
                self._at += 1
        return numbers

    def _names(self, what: str) -> list[str]:
        """Take `(a ASC, b)`."""
        self._expect(TokenType.L_PAREN, "'('")
        names = []
        while not self._take_type(TokenType.R_PAREN):
            names.append(self.name(what))
            _ = self.take("ASC") or self.take("DESC")
            if not self._take_type(TokenType.COMMA) and not self._is_type(TokenType.R_PAREN):
                self._fail("stands where ',' or ')' should")
        return names

    def _qualified(self, what: str) -> str:
        """Take `database.schema.name` and return the last part: a feed's topic has no other by default."""
        name = self.name(what)
        while self._take_type(TokenType.DOT):
            name = self.name(what)
        return name

    def _statement_has(self, words: set[str]) -> bool:
        for token in self._tokens[self._at :]:
            if token.token_type == TokenType.SEMICOLON:
                return False
            if token.token_type == TokenType.VAR and token.text.upper() in words:
                return True
        return False

    def _skip_statement(self) -> None:
        while self.more() and not self._is_type(TokenType.SEMICOLON):
            self._at += 1

    def _peek(self, ahead: int = 0) -> Token | None:
        at = self._at + ahead
        return self._tokens[at] if at < len(self._tokens) else None

    def _word(self, ahead: int = 0) -> str | None:
        token = self._peek(ahead)
        return token.text.upper() if token is not None and token.token_type == TokenType.VAR else None

    def _is_type(self, kind: TokenType, ahead: int = 0) -> bool:
        token = self._peek(ahead)
        return token is not None and token.token_type == kind

    def _take_type(self, kind: TokenType) -> bool:
        if not self._is_type(kind):
            return False
        self._at += 1
        return True

    def _expect(self, kind: TokenType, what: str) -> None:
        if not self._take_type(kind):
            self._fail(f"stands where {what} should")

    def _fail(self, problem: str, hint: str | None = None) -> NoReturn:
        token = self._peek()
        if token is None:
            raise DdlError(f"{self._where}The definition ends too early: its end {problem}.", hint=hint)
        raise DdlError(
            f"{self._where}line {token.line}, column {token.col - len(token.text) + 1}: {token.text!r} {problem}.",
            hint=hint,
        )
