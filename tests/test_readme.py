"""README is true: its example and its commands are run."""

from __future__ import annotations

import json
import re
import subprocess
from typing import TYPE_CHECKING

import pytest
from typer.testing import CliRunner

from penstock import cli
from support import PROJECT

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

README = (PROJECT / "README.md").read_text()
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, re.MULTILINE | re.DOTALL)
ORDERS = (
    "CREATE TABLE public.orders (\n\tid INT8 NOT NULL,\n\titem STRING NULL,\n\tCONSTRAINT p PRIMARY KEY (id ASC)\n)"
)


def test_the_example_is_what_happens(tmp_path: Path, spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    story = next(text for _, text in BLOCKS if text.startswith("changefeed/"))
    tree, said, table = re.split(r"\n\$ penstock run\n|\nlake/orders\n", story)
    folder, data, *lines, resolved = [line.strip() for line in tree.strip().splitlines()]
    (tmp_path / folder).mkdir(parents=True)
    (tmp_path / folder / data).write_text("".join(f"{line}\n" for line in lines))
    (tmp_path / folder / resolved).touch()
    config = next(text for kind, text in BLOCKS if kind == "yaml").replace("s3a://bucket/changefeed", "changefeed")
    (tmp_path / "penstock.yml").write_text(config)
    (tmp_path / "orders.sql").write_text(ORDERS)
    monkeypatch.chdir(tmp_path)

    done = CliRunner().invoke(cli.app, ["run"])
    assert (done.exit_code, done.stdout.strip()) == (0, said.strip())
    rows = spark.read.format("delta").load(str(tmp_path / "lake" / "orders")).collect()
    assert [" ".join(f"{k}={v}" for k, v in row.asDict().items()) for row in rows] == [table.strip()]


@pytest.mark.slow
def test_the_two_commands_and_what_the_demo_says_to_try_next(tmp_path: Path) -> None:
    targets = subprocess.run(["make"], cwd=PROJECT, capture_output=True, text=True, check=True).stdout
    for target in re.findall(r"^make (\w+)", README, re.MULTILINE):
        assert re.search(rf"^{target}\s", targets, re.MULTILINE)
    folder = tmp_path / "demo"
    demo = subprocess.run(["make", "demo", f"DEMO={folder}"], cwd=PROJECT, capture_output=True, text=True, check=False)
    assert demo.returncode == 0, demo.stdout + demo.stderr
    assert demo.stdout.count(": exact,") == 4
    assert "Exact in all 4 rounds" in demo.stdout
    penstock = PROJECT / ".venv" / "bin" / "penstock"
    for verb in ("plan", "run", "status"):
        command = [str(penstock), verb, "-c", str(folder / "penstock.yml"), "--output", "json"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["feeds"][0]["feed"] == "bank"
