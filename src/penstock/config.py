"""penstock.yml as frozen models: the one place for defaults.

The file is read safely, `${VAR}` is filled in from the environment, `PENSTOCK__A__B` overrides the key `a.b`, and every
complaint names the key, the file, the line and the nearest valid name.
"""

from __future__ import annotations

import difflib
import os
import re
import types
import typing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from penstock.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

FILE_NAME = "penstock.yml"
_ENVIRONMENT = "PENSTOCK__"
_VARIABLE = re.compile(r"\$\{(\w+)\}")
_SPAN = re.compile(r"(\d+)\s*([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


def _span(value: object) -> object:
    match = _SPAN.fullmatch(value) if isinstance(value, str) else None
    if match is None:
        raise ValueError("expected a number and a unit of time: 30m, 12h, 1d")
    return timedelta(**{_UNITS[match[2]]: int(match[1])})


Span = Annotated[timedelta, BeforeValidator(_span)]


class Model(BaseModel):
    """A part of penstock.yml: frozen, and nothing unknown in it."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class Destination(Model):
    """Where targets go: a path, or a catalog and a schema."""

    path: str | None = None
    catalog: str | None = None
    schema_: str | None = Field(default=None, alias="schema")
    properties: dict[str, str] = {}

    @model_validator(mode="after")
    def _one_place(self) -> Destination:
        named = self.catalog is not None and self.schema_ is not None
        if (self.path is not None) == named or (self.catalog is None) != (self.schema_ is None):
            raise ValueError("give either `path`, or `catalog` and `schema`")
        return self


class Table(Model):
    """One table of a feed and how its target is kept."""

    ddl: str | None = None
    columns: dict[str, str] | None = None
    primary_key: tuple[str, ...] | None = None
    mode: Literal["mirror"] = "mirror"
    schema_changes: Literal["evolve", "hold", "fail"] = "evolve"
    properties: dict[str, str] = {}
    partition_by: tuple[str, ...] = ()
    cluster_by: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _one_definition(self) -> Table:
        if (self.ddl is None) == (self.columns is None):
            raise ValueError("give either `ddl` (a file with what SHOW CREATE TABLE prints) or `columns`")
        if (self.columns is None) != (self.primary_key is None):
            raise ValueError("`columns` and `primary_key` go together")
        if self.partition_by and self.cluster_by:
            raise ValueError("`partition_by` and `cluster_by` exclude each other")
        return self


class CockroachFeed(Model):
    """A CockroachDB changefeed in cloud storage; format and compression are seen from the file names."""

    kind: Literal["cockroachdb"]
    path: str
    lookback: Span = timedelta(days=1)
    tables: dict[str, Table] = Field(min_length=1)


class Config(Model):
    """The whole of penstock.yml. Paths are made absolute against `base`, the folder of the file."""

    name: str = Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")
    destination: Destination
    checkpoints: str | None = None
    feeds: dict[str, CockroachFeed] = Field(min_length=1)
    base: Path = Path()

    def place(self, path: str) -> str:
        """Return a path of the file as Spark can use it: URLs as they are, relative paths below the file's folder."""
        return path if "://" in path or path.startswith(("/", "file:")) else str(self.base / path)

    @property
    def ledger(self) -> str:
        """The ledger's folder; the default is set here and nowhere else."""
        if self.checkpoints is not None:
            if not self.checkpoints.strip():
                raise ConfigError(
                    "`checkpoints` is empty: the ledger has no place.", hint="Give a path, or leave the key out."
                )
            return self.place(self.checkpoints)
        if self.destination.path is not None:
            return f"{self.place(self.destination.path)}/_penstock"
        return f"/Volumes/{self.destination.catalog}/{self.destination.schema_}/checkpoints"


def find(start: Path | None = None) -> Path:
    """Return the penstock.yml of this folder or the nearest one above it."""
    folder = (start or Path.cwd()).resolve()
    for place in (folder, *folder.parents):
        if (place / FILE_NAME).is_file():
            return place / FILE_NAME
    raise ConfigError(
        f"No {FILE_NAME} in {folder} or any folder above it.", hint="Name one with -c, or see `penstock demo`."
    )


def load(path: Path, environment: Mapping[str, str] | None = None) -> Config:
    """Read penstock.yml.

    Args:
        path: The file.
        environment: Where `${VAR}` and `PENSTOCK__…` come from; default is the process's own.

    Raises:
        ConfigError: With the key, the file and the line.
    """
    env = os.environ if environment is None else environment
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}.") from error
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"{path} holds no settings.", hint="`penstock demo` writes an example.")
    places = {at: _Place(f"{path}, line {line}") for at, line in _lines(path, node)}
    _override(data, env, places)
    data = _fill(data, env, ())
    if "base" in data:
        raise ConfigError(f"{path}: unknown key `base`.")
    try:
        return Config.model_validate({**data, "base": path.resolve().parent})
    except ValidationError as error:
        raise ConfigError(*_explain(error, places, path)) from error


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a key was set, for people."""

    text: str


_Path = tuple[str, ...]


def _lines(path: Path, node: yaml.Node | None, at: _Path = ()) -> Iterator[tuple[_Path, int]]:
    """Yield the line of every key, and refuse a key that stands twice (YAML would keep the last one silently)."""
    if isinstance(node, yaml.MappingNode):
        seen: set[str] = set()
        for key, value in node.value:
            name = str(key.value)
            line = key.start_mark.line + 1
            if name in seen:
                raise ConfigError(f"{path}, line {line}: the key `{name}` is there twice.")
            seen.add(name)
            yield (*at, name), line
            yield from _lines(path, value, (*at, name))
    elif isinstance(node, yaml.SequenceNode):
        for number, value in enumerate(node.value):
            yield from _lines(path, value, (*at, str(number)))


def _override(data: dict[str, Any], env: Mapping[str, str], places: dict[_Path, _Place]) -> None:
    """Set the keys that the environment names; known keys are met whatever their case."""
    for variable in sorted(env):
        if not variable.startswith(_ENVIRONMENT):
            continue
        inner: Any = data
        at: _Path = ()
        parts = variable.removeprefix(_ENVIRONMENT).split("__")
        for number, part in enumerate(parts):
            if not part or not isinstance(inner, dict):
                raise ConfigError(f"{variable} in the environment names no key of {FILE_NAME}.")
            name = next((key for key in inner if str(key).lower() == part.lower()), part.lower())
            at = (*at, str(name))
            if number == len(parts) - 1:
                inner[name] = yaml.safe_load(env[variable])
            else:
                inner = inner.setdefault(name, {})
        places[at] = _Place(f"{variable} in the environment")


def _fill(value: Any, env: Mapping[str, str], at: _Path) -> Any:
    """Replace `${VAR}` in every text."""
    if isinstance(value, dict):
        return {str(key): _fill(inner, env, (*at, str(key))) for key, inner in value.items()}
    if isinstance(value, list):
        return [_fill(inner, env, at) for inner in value]
    if not isinstance(value, str):
        return value

    def known(match: re.Match[str]) -> str:
        if match[1] not in env:
            raise ConfigError(f"`{'.'.join(at)}` needs ${{{match[1]}}}, which the environment does not have.")
        return env[match[1]]

    return _VARIABLE.sub(known, value)


def _explain(error: ValidationError, places: Mapping[_Path, _Place], path: Path) -> tuple[str]:
    """Turn pydantic's first complaint into one sentence with the place and the nearest valid name."""
    first = error.errors()[0]
    at = tuple(str(part) for part in first["loc"])
    place = next((places[at[:size]].text for size in range(len(at), 0, -1) if at[:size] in places), str(path))
    key = ".".join(at)
    if first["type"] == "extra_forbidden":
        near = difflib.get_close_matches(at[-1], _names(Config, at[:-1]), n=1)
        return (f"{place}: unknown key `{key}`." + (f" Did you mean `{near[0]}`?" if near else ""),)
    if first["type"] == "missing":
        return (f"{place}: `{key}` is missing.",)
    message = first["msg"].removeprefix("Value error, ")
    return (f"{place}: `{key}`: {message}." if key else f"{place}: {message}.",)


def _names(model: Any, at: _Path) -> list[str]:
    """Return the keys that are valid below `at`."""
    if isinstance(model, type) and issubclass(model, Model):
        fields = {field.alias or name: field.annotation for name, field in model.model_fields.items() if name != "base"}
        return _names(fields[at[0]], at[1:]) if at and at[0] in fields else list(fields)
    if typing.get_origin(model) is dict and at:
        return _names(typing.get_args(model)[1], at[1:])
    if typing.get_origin(model) in (typing.Union, types.UnionType):
        return [name for part in typing.get_args(model) for name in _names(part, at)]
    return []
