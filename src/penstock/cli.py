"""The command line: parse, call, render. Data goes to stdout, talk to stderr."""

from __future__ import annotations

import enum
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

import typer
from rich.console import Console

from penstock import config as configuration
from penstock.errors import ConfigError, LoadTakenError, PenstockError
from penstock.sessions import jvm_log_path, session

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pyspark.sql import SparkSession

    from penstock.pipeline import Pipeline
    from penstock.report import RunReport

_SET_ASIDE = 3
_TALK = Console(stderr=True, highlight=False)

app = typer.Typer(
    name="penstock",
    help="Change feeds in object storage become exact Delta tables.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


class Output(str, enum.Enum):
    """How results are printed."""

    text = "text"
    json = "json"


_Config = Annotated[
    Path | None, typer.Option("-c", "--config", help="penstock.yml; default: this folder's or the nearest above.")
]
_Output = Annotated[Output, typer.Option("--output", help="text for people, json for scripts.")]
_Feed = Annotated[list[str] | None, typer.Option("--feed", help="Only this feed; may be given again.")]
_Tables = Annotated[list[str] | None, typer.Option("--tables", help="Only this table; may be given again.")]
_Until = Annotated[str | None, typer.Option("--until", help="Go no further than this position (HLC or ISO instant).")]
_First = Annotated[str | None, typer.Option("--from", help="Where tables without a load begin (exclusive).")]
_Full = Annotated[bool, typer.Option("--full-listing", help="Look at every directory, not only the latest days.")]


@app.command()
def demo(
    folder: Annotated[Path, typer.Argument(help="Where the feed and the tables go.")] = Path("penstock-demo"),
    seed: Annotated[int, typer.Option("--seed", help="Makes the bank; the same seed gives the same feed.")] = 1,
    rounds: Annotated[int, typer.Option("--rounds", help="How many times the feed grows.")] = 4,
    output: _Output = Output.text,
) -> None:
    """Tour a bank's changefeed: late, doubled, straddling, killed, and exact."""
    from penstock.demo import live, render, run_demo  # noqa: PLC0415 - pyspark is imported only by verbs that need it

    if output is Output.json:
        report = run_demo(folder, seed=seed, rounds=rounds, say=lambda text: _TALK.print(text, markup=False))
        _print(report.to_dict())
    else:
        out = Console(highlight=False)
        with live(out, _TALK) as (say, finished):
            report = run_demo(folder, seed=seed, rounds=rounds, say=say, finished=finished)
        render(report, out)
    if not report.exact:
        raise typer.Exit(1)


@app.command()
def plan(
    config: _Config = None,
    feed: _Feed = None,
    tables: _Tables = None,
    until: _Until = None,
    first: _First = None,
    full_listing: _Full = False,
    output: _Output = Output.text,
) -> None:
    """Say what a run would do now, and why; write nothing."""
    from penstock.ops.plan import plan_dict, plan_text  # noqa: PLC0415

    pipeline = _pipeline(config)
    plans = pipeline.plan(_spark(), feeds=feed, tables=tables, until=until, first=first, full_listing=full_listing)
    if output is Output.json:
        _print({"feeds": [plan_dict(one) for one in plans]})
    else:
        typer.echo("\n".join(plan_text(one) for one in plans))


@app.command()
def run(
    config: _Config = None,
    feed: _Feed = None,
    tables: _Tables = None,
    until: _Until = None,
    first: _First = None,
    full_listing: _Full = False,
    watch: Annotated[float | None, typer.Option("--watch", min=0, help="Run again every so many seconds.")] = None,
    output: _Output = Output.text,
) -> None:
    """Move every target to its feed's watermark."""
    pipeline = _pipeline(config)
    spark = _spark()
    options = {"feeds": feed, "tables": tables, "until": until, "first": first, "full_listing": full_listing}
    set_aside = 0
    for _ in _rounds(watch):
        try:
            report = pipeline.run(spark, **options, progress=_progress)
        except LoadTakenError as error:
            if watch is None:
                raise
            _TALK.print(f"penstock: {error}", markup=False, soft_wrap=True)
            continue
        set_aside += report.set_aside
        if output is Output.json:
            _print(report.to_dict())
        else:
            typer.echo(_report_text(report))
    if set_aside:
        raise typer.Exit(_SET_ASIDE)


@app.command()
def status(config: _Config = None, output: _Output = Output.text) -> None:
    """Show where each feed stands: watermark, applied position, backlog, held files, the cut."""
    from penstock.ops.status import status as facts_of  # noqa: PLC0415
    from penstock.ops.status import status_text  # noqa: PLC0415

    facts = facts_of(_pipeline(config), _spark())
    if output is Output.json:
        _print(facts)
    else:
        typer.echo(status_text(facts))


def main() -> NoReturn:
    """Run the command line; every Penstock error is one message and its exit code."""
    try:
        app(standalone_mode=False)
    except typer.Exit as done:
        sys.exit(done.exit_code)
    except PenstockError as error:
        if "json" in sys.argv:
            _print({"error": error.to_dict()})
        _TALK.print(f"penstock: {error}", markup=False, soft_wrap=True)
        sys.exit(error.exit_code)
    except KeyboardInterrupt:
        sys.exit(130)
    sys.exit(0)


def _pipeline(config: Path | None) -> Pipeline:
    from penstock.pipeline import Pipeline  # noqa: PLC0415

    path = config or configuration.find()
    if not path.is_file():
        raise ConfigError(f"{path} is not there.")
    return Pipeline.from_file(path)


def _spark() -> SparkSession:
    with _TALK.status("Starting Spark (the first time, Delta's jars are fetched from Maven Central) …"):
        return session(jvm_log=jvm_log_path())


def _rounds(watch: float | None) -> Iterator[None]:
    yield
    while watch is not None:
        time.sleep(watch)
        yield


def _progress(feed: str, table: str, what: str) -> None:
    if _TALK.is_terminal:
        _TALK.print(f"{feed} {table}: {what}", markup=False)


def _report_text(report: RunReport) -> str:
    lines = []
    for feed in report.feeds:
        if feed.state == "waiting":
            lines.append(f"{feed.feed}: no RESOLVED file yet; nothing was applied")
        elif feed.state == "idle":
            lines.append(f"{feed.feed}: nothing new; applied {feed.applied}")
        else:
            how = "resumed" if feed.resumed else "done"
            lines.append(f"{feed.feed}: load {feed.load} {how}; applied {feed.applied}; {feed.held_files} files held")
        lines += [
            f"  {one.table}: {one.files} files, {one.rows_read} rows read, {one.replays} replayed, "
            f"{one.inserted} inserted, {one.updated} updated, {one.deleted} deleted, {one.set_aside} set aside"
            for one in feed.tables
        ]
        lines += [
            f"  {topic!r} is not configured: {count} files left alone" for topic, count in feed.unconfigured.items()
        ]
    return "\n".join(lines)


def _print(value: dict[str, Any]) -> None:
    typer.echo(json.dumps(value, ensure_ascii=False, default=str))
