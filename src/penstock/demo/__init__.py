"""The bank: a changefeed with all that goes wrong in one, and a tour of what Penstock makes of it."""

from penstock.demo.render import live, render
from penstock.demo.tour import FOLDER, DemoReport, RoundReport, run_demo

__all__ = ["FOLDER", "DemoReport", "RoundReport", "live", "render", "run_demo"]
