"""Where each feed stands: the bucket, the ledger, what lies between. Writes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from penstock.ledger import Ledger

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

    from penstock.pipeline import FeedPlan, Pipeline


def status(pipeline: Pipeline, spark: SparkSession) -> dict[str, Any]:
    """Return the state of every feed as JSON-ready values; the shape only grows. What is unknown is null, never 0."""
    ledger = Ledger(spark, pipeline.config.ledger, pipeline.config.name)
    feeds = [_feed(plan, ledger.history(plan.feed, 1)) for plan in pipeline.plan(spark)]
    return {"pipeline": pipeline.config.name, "ledger": pipeline.config.ledger, "feeds": feeds}


def status_text(facts: dict[str, Any]) -> str:
    """Return the status for people."""
    lines = []
    for feed in facts["feeds"]:
        lines.append(f"feed {feed['feed']}")
        lines.append(f"  watermark {feed['watermark'] or 'none yet'}")
        lines.append(f"  applied   {feed['applied'] or 'nothing yet'}")
        lines.append(
            f"  backlog   {feed['backlog_files']} files, {feed['backlog_bytes']} bytes; {len(feed['held_files'])} held"
        )
        last = feed["last_load"]
        if last:
            lines.append(f"  last load {last['number']} ({last['event']}) to {last['end']} at {last['at']}")
        if feed["unfinished_load"]:
            lines.append(f"  load {feed['unfinished_load']} was registered and not consumed: the next run resumes it")
        lines += [
            f"  {one['table']}: version {one['version']} of {one['target']}"
            for one in feed["cut"]
            if one["version"] is not None
        ]
    return "\n".join(lines)


def _feed(plan: FeedPlan, closed: list[Row]) -> dict[str, Any]:
    state = plan.state
    waiting = (*plan.selection.candidates, *plan.selection.above)
    last = closed[0] if closed else None
    return {
        "feed": plan.feed,
        "watermark": None if plan.watermark is None else str(plan.watermark),
        "watermark_time": None if plan.watermark is None else plan.watermark.instant.isoformat(),
        "applied": None if state.position is None else str(state.position),
        "applied_time": None if state.position is None else state.position.instant.isoformat(),
        "backlog_files": len(waiting),
        "backlog_bytes": sum(file.size for file in waiting),
        "held_files": [file.path for file in state.held],
        "unfinished_load": None if state.unfinished is None else state.unfinished.number,
        "last_load": None
        if last is None
        else {
            "number": last["load"],
            "event": last["event"],
            "end": last["end"],
            "files": last["files"],
            "at": f"{last['at']:%Y-%m-%dT%H:%M:%S}",
        },
        "cut": [
            {
                "table": one.table,
                "position": str(one.position),
                "target": one.target,
                "table_id": one.table_id,
                "version": one.version,
            }
            for one in state.cut.values()
        ],
    }
