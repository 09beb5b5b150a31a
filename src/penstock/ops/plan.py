"""A plan for people and for scripts: which files would be read, which not, and why. Writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable

    from penstock.load import FeedFile
    from penstock.pipeline import FeedPlan

_WHY = {
    "new": "not in the ledger",
    "held": "read before; has rows above the last load's end",
    "above": "named above the watermark: it holds no row of this load",
    "unknown": "of a table that is not in the configuration",
}


def plan_dict(plan: FeedPlan) -> dict[str, Any]:
    """Return a feed's plan as JSON-ready values; the shape only grows."""
    load = plan.next_load
    chosen = plan.selection
    return {
        "feed": plan.feed,
        "watermark": _text(plan.watermark),
        "applied": _text(plan.state.position),
        "action": "wait"
        if plan.watermark is None
        else "idle"
        if load is None
        else "resume"
        if load.resumed
        else "load",
        "load": None
        if load is None
        else {
            "number": load.number,
            "end": str(load.end),
            "starts": {table: _text(start) for table, start in load.starts.items()},
            "files": len(load.files),
            "bytes": sum(file.size for file in load.files),
        },
        "files": {
            "new": _files(chosen.new),
            "held": _files(chosen.held),
            "above": _files(chosen.above),
            "unknown": dict(plan.unconfigured),
            "consumed": chosen.consumed,
        },
        "tables_without_files": sorted(set(plan.starts) - {file.table for file in (*chosen.candidates, *chosen.above)}),
        "why": _WHY,
    }


def plan_text(plan: FeedPlan) -> str:
    """Return a feed's plan for people."""
    facts = plan_dict(plan)
    load = facts["load"]
    lines = [
        f"feed {plan.feed}: watermark {facts['watermark'] or 'none yet'}, applied {facts['applied'] or 'nothing yet'}"
    ]
    if facts["action"] == "wait":
        lines.append("  no RESOLVED file yet: nothing can be applied")
    elif load is None:
        lines.append("  nothing new")
    else:
        verb = "resume" if facts["action"] == "resume" else "register"
        lines.append(
            f"  would {verb} load {load['number']} to {load['end']}: {load['files']} files, {load['bytes']} bytes"
        )
    for kind in ("new", "held", "above"):
        lines += [f"  {kind:<8} {file['path']}  ({_WHY[kind]})" for file in facts["files"][kind]]
    lines += [
        f"  unknown  {count} files of {topic!r}  ({_WHY['unknown']})" for topic, count in plan.unconfigured.items()
    ]
    lines.append(f"  consumed {facts['files']['consumed']} files")
    return "\n".join(lines)


def _files(files: Iterable[FeedFile]) -> list[dict[str, Any]]:
    return [{"table": file.table, "path": file.path, "bytes": file.size} for file in files]


def _text(position: object | None) -> str | None:
    return None if position is None else str(position)
