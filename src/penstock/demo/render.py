"""The tour for people: a table that grows on a terminal, one line for each round elsewhere."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.box import SIMPLE_HEAD
from rich.console import Group
from rich.live import Live
from rich.markup import escape
from rich.spinner import Spinner
from rich.table import Table

from penstock.demo.bank import TOTAL
from penstock.position import Hlc

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from decimal import Decimal

    from rich.console import Console

    from penstock.demo.tour import DemoReport, RoundReport

_WIDE = 100

Show = tuple["Callable[[str], None]", "Callable[[RoundReport], None]"]


@contextmanager
def live(out: Console, err: Console) -> Iterator[Show]:
    """Yield `say` and `finished` for `run_demo`: rounds go to `out` as they finish, talk to `err`.

    On a terminal both share one table that grows, with the talk below it while the tour lasts.
    """
    if not out.is_terminal:
        yield (lambda text: err.print(text, markup=False)), (lambda done: _print(out, _line(done)))
        return
    rounds: list[RoundReport] = []
    spinner = Spinner("dots", "Starting Spark.")
    with Live(Group(_table(rounds, out.width), spinner), console=out) as screen:

        def finished(done: RoundReport) -> None:
            rounds.append(done)
            screen.update(Group(_table(rounds, out.width), spinner))

        yield (lambda text: spinner.update(text=escape(text))), finished
        screen.update(_table(rounds, out.width))


def render(report: DemoReport, console: Console) -> None:
    """Print the end of a tour: the verdict, where the tables are, and what to try next."""
    last = report.rounds[-1]
    if report.exact:
        verdict = f"Exact in all {len(report.rounds)} rounds: every row as the bank's record has it, total {TOTAL:,}."
    else:
        wrong = ", ".join(str(one.number) for one in report.rounds if not one.exact)
        verdict = (
            f"NOT exact in round {wrong}: this is a defect of Penstock, please report it with the seed {report.seed}."
        )
    _print(console, "")
    console.print(escape(verdict), style="bold green" if report.exact else "bold red", highlight=False, soft_wrap=True)
    _print(
        console,
        f"""\
The recipe ends with {last.recipe_wrong_rows} wrong rows and is off by {_signed(last.recipe_error)}. \
It merges what has arrived, the newest row
of each key where that is newer; it waits for no RESOLVED, and its deletes are not guarded.

node 2 ahead   its rows above RESOLVED are there, the other half of their transactions is not
restart        a new session repeats what came after the last RESOLVED
late repeats   a replaced node writes old rows, in files named far below RESOLVED
run killed     by SIGKILL, as soon as `accounts` was committed; the next run finished the load

{report.seconds:.0f} s. The feed, penstock.yml and the Delta tables are in {report.folder}:
  {report.tables["accounts"]}
  {report.tables["transfers"]}

Next, try
  penstock status -c {report.config}
  penstock plan -c {report.config}
  penstock run -c {report.config}     # nothing new: no commit anywhere
or in Python
  import penstock
  spark = penstock.session()
  spark.read.format("delta").load("{report.tables["accounts"]}").groupBy().sum("balance").show()""",
    )


def _table(rounds: list[RoundReport], width: int) -> Table:
    """Return the rounds as a table; only the story is ever broken into lines, and a narrow one leaves a column out."""
    wide = width >= _WIDE
    table = Table(box=SIMPLE_HEAD, padding=(0, 1) if wide else 0, pad_edge=False)
    table.add_column("#")
    table.add_column("what happens", min_width=14)
    names = [
        "UTC",
        "read",
        "repeats",
        "held",
        "total",
        "tables",
        *(["recipe's total"] if wide else []),
        "recipe\noff by",
    ]
    for name in names:
        table.add_column(name, justify="right", no_wrap=True)
    for one in rounds:
        table.add_row(
            str(one.number),
            escape(one.story),
            _time(one),
            str(one.rows_read),
            str(one.repeats),
            str(one.held_files),
            f"{one.total:,}",
            "[green]exact[/]" if one.exact else f"[red]{_verdict(one)}[/]",
            *([f"{one.recipe_total:,}"] if wide else []),
            f"[red]{_signed(one.recipe_error)}[/]" if one.recipe_error else "0.00",
        )
    return table


def _line(one: RoundReport) -> str:
    return (
        f"round {one.number}: {_verdict(one)}, watermark {_time(one)}, {one.rows_read} rows read, "
        f"{one.repeats} repeats, {one.held_files} files held, total {one.total:,}; "
        f"recipe's total {one.recipe_total:,}, off by {_signed(one.recipe_error)} ({one.story})"
    )


def _verdict(one: RoundReport) -> str:
    if one.exact:
        return "exact"
    return f"{one.wrong_rows} wrong rows" if one.wrong_rows else "not at the watermark"


def _time(one: RoundReport) -> str:
    return "none" if one.watermark is None else f"{Hlc.parse(one.watermark).instant:%H:%M:%S}"


def _signed(amount: Decimal) -> str:
    return f"{amount:+,}"


def _print(console: Console, text: str) -> None:
    """Print plain text as it is: no colours guessed, no lines broken."""
    console.print(text, markup=False, highlight=False, soft_wrap=True)
