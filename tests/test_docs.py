"""Docs are true: every error code and every command is described, and importing penstock stays light."""

from __future__ import annotations

import subprocess
import sys

import pytest

from penstock import cli, errors
from penstock.feeds.cockroachdb.rows import FAULTS
from support import PROJECT

CLASSES = [
    value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, errors.PenstockError)
]


@pytest.mark.parametrize("code", sorted({one.code for one in CLASSES} | set(FAULTS)))
def test_every_error_code_is_documented(code: str) -> None:
    assert f"`{code}`" in (PROJECT / "docs" / "reference" / "errors.md").read_text()


@pytest.mark.parametrize(
    "verb", [command.callback.__name__ for command in cli.app.registered_commands if command.callback]
)
def test_every_command_has_help_and_stands_in_the_readme(verb: str) -> None:
    command = next(one for one in cli.app.registered_commands if one.callback and one.callback.__name__ == verb)
    assert command.callback
    assert command.callback.__doc__
    readme = (PROJECT / "README.md").read_text()
    assert f"penstock {verb}" in readme or f"make {verb}" in readme


def test_importing_penstock_and_its_command_line_imports_no_pyspark() -> None:
    code = (
        "import sys, penstock, penstock.cli; print([m for m in sys.modules if m.split('.')[0] in ('pyspark', 'delta')])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout == "[]\n"


def test_public_names_are_sorted_and_there() -> None:
    import penstock  # noqa: PLC0415

    assert list(penstock.__all__) == sorted(penstock.__all__)
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
