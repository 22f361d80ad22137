"""How many messages that say several things at once are understood by rules alone, in English and Chinese.

    python benchmarks/several.py

`benchmarks/expressions/several*.jsonl` has conversations with the desk of `examples/clinic`, each with a last
message that answers and asks, ends one thing and starts another, starts two, answers and corrects, or
starts and asks. A row is right if all of it happens: inputs are taken, runs start (or wait for the first
one), the old one is cancelled, the question is answered by a flow or gets what a source of knowledge finds.
The writers knew the flows, and not the rules.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio

from loom_core.flow.config import LoadedFlows, read_flow_file
from loom_core.flow.orchestrator import WorkflowOrchestrator
from loom_core.flow.regression import RecordingCaller, read_utterances
from loom_core.flow.understanding.moments import situation
from loom_core.knowledge.model import KnowledgeItem
from loom_core.runs.journal import Journal
from loom_core.runs.run import Run

_CLINIC = Path(__file__).parents[1] / "examples" / "clinic"
_TABLES = Path(__file__).parent / "expressions"
_NOW = datetime.fromisoformat("2026-11-25T09:00:00+08:00")
_FOUND = "(what the clinic knows)"


class _Known:
    """A source that knows something about everything."""

    def identity(self, message: str, context: Mapping[str, Any]) -> str:
        return message

    async def find(self, message: str, context: Mapping[str, Any]) -> Sequence[KnowledgeItem]:
        return [KnowledgeItem("k", _FOUND, "kb://k", 0.9)]


def main() -> None:
    print("| table | kind | rows | right |")
    print("|---|---|---|---|")
    for path in sorted(_TABLES.glob("several*.jsonl")):
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        right = anyio.run(_check, rows)
        counts, kinds = Counter(row["kind"] for row in right), Counter(row["kind"] for row in rows)
        for kind, count in kinds.items():
            print(f"| {path.stem} | {kind} | {count} | {counts[kind]} |")
        print(f"| {path.stem} | all | {len(rows)} | {len(right)} |")


async def _check(rows: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the rows that are understood."""
    loaded = read_flow_file(_CLINIC / "flow.json")
    loaded = replace(loaded, file=loaded.file.model_copy(update={"model": None}))
    return [row for row in rows if await _is_right(row, loaded)]


async def _is_right(row: Mapping[str, Any], loaded: LoadedFlows) -> bool:
    journal, desk = Journal(), RecordingCaller(loaded.file)
    first = read_utterances((_CLINIC / "utterances.jsonl").read_text(encoding="utf-8"))[0]
    desk.answers = first.answers
    try:
        assistant = WorkflowOrchestrator(
            loaded, journal=journal, caller=desk, knowledge=_Known(), look_seconds=None
        )
        async with desk, assistant:
            session, text, before = "", "", set[str]()
            for message in (*row["before"], row["message"]):
                before = {run.id for run in await journal.runs(limit=9)}
                with situation(_NOW, "en"):
                    reply = await assistant.query(message, session_id=session)
                session, text = reply.session_id, reply.text
            runs = await journal.runs(limit=9)
            begun = [run for run in runs if run.status == "completed" and run.id not in before]
            answered = _FOUND in text or any(
                run.request.profile != row["expect"].get("started") for run in begun
            )
            waiting = {
                each["decision"]["target"] for each in await _waiting(journal, session) if each["decision"]
            }
            return _fits(row["expect"], runs, answered=answered, waiting=waiting)
    finally:
        await journal.aclose()


async def _waiting(journal: Journal, session: str) -> Sequence[Mapping[str, Any]]:
    """Return the requests that wait for the first one of their message."""
    return (await journal.session_state(session, caller="")).content.get("queue", ())


def _fits(expected: Mapping[str, Any], runs: Sequence[Run], *, answered: bool, waiting: set[str]) -> bool:
    given: list[Mapping[str, Any]] = [
        run.pending[0].arguments if run.pending else run.request.metadata.get("inputs", {}) for run in runs
    ]
    started = {run.request.profile for run in runs} | waiting
    ended = {run.request.profile for run in runs if run.status == "aborted"}
    wanted = expected.get("started", [])
    return (
        all(
            any(each.get(name) == value for each in given)
            for name, value in expected.get("inputs", {}).items()
        )
        and {*([wanted] if isinstance(wanted, str) else wanted)} <= started
        and {*filter(None, [expected.get("cancelled")])} <= ended
        and (answered or "question" not in expected)
    )


if __name__ == "__main__":
    main()
