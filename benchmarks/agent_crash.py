"""Agents are killed at random moments: every run comes to its end, and nothing is done twice or lost.

    python benchmarks/agent_crash.py [--kills 200] [--processes 1] [--seed 0] [--keep FOLDER] [--database URL]

Processes that share one journal drive scripted runs of several turns, with calls side by side and one after
the other, some of which fail and are retried, an agent as a tool, a router with two members, two members that
hand the conversation over, conversations that are shortened, sessions that go on, and notes about users;
another process begins the runs, approves, changes and refuses calls, pauses, aborts, resumes
(`agent_crash_actor.py`). One of them gets SIGKILL at a random moment and is started again. What the tools do
is counted here, outside of the processes that are killed.

At last all runs are let come to their end, and each is compared with what was counted: no call that must not
be made twice was, unless a person said so of one of which no one knew; nothing has a result that was not
done; what was refused was not done, and what was changed was done as changed; every call has one result, and
events are numbered without a gap; what users have said about themselves is noted, once. What the model was
asked with, each time as long as it got before it was shortened, and each conversation that is remembered, is
sent to strict fakes of OpenAI and Anthropic.
"""

from __future__ import annotations

import json
import re
import socketserver
import sys
import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from killing import crash_run, journal_place

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.llm.messages import Message
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.journal import Journal
    from loom_core.runs.run import Run

sys.path.append(str(Path(__file__).parents[1]))  # for the fake vendors of the tests

_ACTOR = Path(__file__).with_name("agent_crash_actor.py")
_REPEATABLE = frozenset({"read", "fetch", "put"})
_MEMBERS = frozenset({"left", "right", "front", "back"})
_HANDOFFS = frozenset({"handoff_to_front", "handoff_to_back"})
_WITHOUT_EFFECT = _MEMBERS | _HANDOFFS | {"help"}
_ALLERGY = re.compile("我对.+?过敏")
_VENDORS = ("openai", "anthropic")


class _Server(socketserver.ThreadingUnixStreamServer):
    daemon_threads = True
    request_queue_size = 256  # callers of several processes at once


class Effects:
    """Counts what tools do; in threads, for processes that are killed."""

    def __init__(self, folder: Path) -> None:
        self.done: dict[tuple[str, str], list[str]] = {}
        self.shared = str(folder / "effects.sock")
        self._lock = threading.Lock()
        effects = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                line = self.rfile.readline()
                if line.endswith(b"\n"):
                    effects.count(json.loads(line))
                    try:
                        self.wfile.write(b"done\n")
                    except OSError:  # the client was killed
                        return

        server = _Server(self.shared, Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()

    def count(self, effect: dict[str, str]) -> None:
        """Something was done."""
        with self._lock:
            self.done.setdefault((effect["run"], effect["call"]), []).append(effect["what"])

    def total(self) -> int:
        """How often something was done."""
        return sum(map(len, self.done.values()))


class _Calls:
    """Calls of a run, by its events."""

    def __init__(self) -> None:
        self.tools: dict[str, str] = {}
        self.starts = Counter[str]()
        self.results: dict[str, list[str]] = {}
        self.kinds: dict[str, str] = {}
        self.asked = Counter[str]()
        self.decided: dict[str, str] = {}
        self.again = Counter[str]()
        self.attempts: dict[str, list[int]] = {}

    def see(self, event: StreamEvent) -> None:
        """Take in an event."""
        payload: Any = event.payload
        id_ = payload.get("call_id", "")
        match event.type:
            case "tool_calls_start":
                self.tools |= {call["call_id"]: call["tool"] for call in payload["calls"]}
            case "tool_start":
                self.starts[id_] += 1
            case "tool_retry":
                self.attempts.setdefault(id_, []).append(payload["attempt"])
            case "tool_result":
                self.results.setdefault(id_, []).append(payload["status"])
            case "approval_required":
                self.kinds[payload["pending"]["id"]] = kind = payload["pending"]["kind"]
                self.asked[kind] += 1
            case "approval_decided" if self.kinds[id_] == "unknown":
                self.again[id_] += payload["action"] == "approve"
            case "approval_decided":
                self.decided[id_] = payload["action"]
            case _:
                pass

    def compared(self, id_: str, done: Sequence[str]) -> list[str]:
        """Return the faults of a call whose effects are `done`."""
        decided, results = self.decided.get(id_), self.results.get(id_)
        attempts = self.attempts.get(id_, [])
        once = self.tools[id_] not in _REPEATABLE
        if self.tools[id_] in _WITHOUT_EFFECT:  # what is done for an agent is done in a run of its own
            return [] if results is not None and len(results) == 1 else [f"results {results}"]
        found = {
            f"results {results}": results is None or len(results) != 1,
            f"done {len(done)} times, begun {self.starts[id_]} times": len(done) > self.starts[id_],
            f"done {len(done)} times, approved again {self.again[id_]} times": (
                once and len(done) > 1 + self.again[id_]
            ),
            f"was tried as number {attempts}": attempts != [2, 3][: len(attempts)],
            "has a result, and was not done": results == ["success"] and not done,
            "done without approval": (
                self.tools[id_] == "sign" and bool(done) and decided not in {"approve", "edit"}
            ),
            f"done with other arguments than decided: {done}": any(
                what.endswith("（改）") != (decided == "edit") for what in done
            ),
        }
        return [text for text, wrong in found.items() if wrong]


class Findings:
    """Findings of the final comparison."""

    def __init__(self, done: dict[tuple[str, str], list[str]]) -> None:
        self._done = done
        self.wrong: list[str] = []
        self.counts = Counter[str]()

    async def compare(self, path: Path) -> None:
        """Compare all runs of a journal with what was counted."""
        from loom_core.runs.journal import Journal
        from loom_core.runs.memory import SQLiteMemory

        journal = Journal(journal_place(path))
        memory = SQLiteMemory(journal=journal)
        sessions: dict[str, list[Message]] = {}
        histories: list[Sequence[Message]] = []
        said: dict[str, set[str]] = {}
        for run in reversed(await journal.runs(limit=100_000)):
            self.counts[f"runs {run.status}"] += 1
            events = await journal.events(run.id, limit=100_000)
            self._check_run(run, events)
            self._check_calls(run, events)
            requests, conversation = await _conversations(journal, run.id)
            histories += requests
            if run.request.profile == "default" and run.status == "completed":
                said.setdefault(run.request.caller, set()).update(_ALLERGY.findall(run.request.goal))
            if conversation:  # else it was aborted before its start
                sessions[run.request.session_id] = conversation
        for session_id, conversation in sessions.items():
            if await memory.messages(session_id) != conversation:
                self.wrong.append(f"session {session_id} is not remembered as it was")
        await journal.aclose()
        await self._check_notes(path, said)
        await self._check_taken([*histories, *sessions.values()])

    def _check_run(self, run: Run, events: Sequence[StreamEvent]) -> None:
        number = _number(run)
        self.counts["runs for a call"] += run.request.profile in _MEMBERS | {"helper"}
        self.counts["runs of the router"] += run.request.profile == "desk"
        self.counts["runs with handoffs"] += run.request.profile == "office"
        handed = run.request.profile in _MEMBERS and run.structured is not None
        self.counts["handoffs"] += handed
        types = Counter(event.type for event in events)
        self.counts["events"] += len(events)
        for type_ in ("compression_applied", "paused", "aborted", "resumed", "message_received"):
            self.counts[type_] += types[type_]
        if [event.seq for event in events] != list(range(1, len(events) + 1)):
            self.wrong.append(f"run {number}: its events are not numbered without a gap")
        if run.status not in {"completed", "aborted"}:
            self.wrong.append(f"run {number} is {run.status}: {run.problem}")
        is_task = run.request.goal.startswith("任务 ")  # else a message meanwhile, which a member got
        if is_task and run.status == "completed" and not handed and run.output != f"任务 {number} 完成":
            self.wrong.append(f"run {number} has the output {run.output!r}")

    def _check_calls(self, run: Run, events: Sequence[StreamEvent]) -> None:
        calls = _Calls()
        for event in events:
            calls.see(event)
        self.counts.update({f"asked: {kind}": number for kind, number in calls.asked.items()})
        where = f"run {_number(run)}"
        for id_, name in calls.tools.items():
            self.counts["calls"] += 1
            if calls.starts[id_]:
                self.counts["made again" if calls.starts[id_] > 1 else "made once"] += 1
            self.counts["retries"] += len(calls.attempts.get(id_, []))
            done = self._done.get((run.id, id_), [])
            self.wrong += [f"{where}, {name} {id_}: {wrong}" for wrong in calls.compared(id_, done)]
        strange = {call for run_id, call in self._done if run_id == run.id} - calls.tools.keys()
        if strange:
            self.wrong.append(f"{where}: done without being wanted: {strange}")

    async def _check_notes(self, path: Path, said: dict[str, set[str]]) -> None:
        """Compare the notes about users with what they have said in runs that completed."""
        from agent_crash_actor import user_memory

        memory = user_memory(path)
        for user, expected in said.items():
            notes = [note.text for note in await memory.notes(user)]
            self.counts["notes"] += len(notes)
            if len(notes) > len(set(notes)) or expected - set(notes):
                self.wrong.append(f"{user} said {expected}, and noted is {notes}")

    async def _check_taken(self, histories: Sequence[Sequence[Message]]) -> None:
        from loom_core.errors import LoomError
        from loom_core.llm.hosted.providers import PROVIDERS
        from loom_core.net.retry import RetryPolicy
        from tests.fixtures.vendors import FakeVendors

        fake = FakeVendors()
        async with fake.http_client() as http_client:
            for vendor in _VENDORS:
                model = PROVIDERS[vendor](
                    api_key=fake.key,
                    base_url=fake.base_url(vendor),
                    http_client=http_client,
                    retry=RetryPolicy(attempts=1),
                )
                for history in histories:
                    self.counts["histories sent"] += 1
                    try:
                        await model.chat(_asked_on(history))
                    except LoomError as error:
                        self.wrong.append(f"{vendor} does not take a history: {error}")


def _number(run: Run) -> str:
    """Of the task of a run."""
    return run.request.goal.split("：", 1)[0].removeprefix("任务 ")


def _asked_on(history: Sequence[Message]) -> list[Message]:
    """A history with something to answer."""
    from loom_core.llm.messages import AssistantMessage, TextPart, UserMessage

    more = [UserMessage((TextPart("谢谢"),))] if isinstance(history[-1], AssistantMessage) else []
    return [*history, *more]


async def _conversations(journal: Journal, run_id: str) -> tuple[list[list[Message]], list[Message]]:
    """Return the model's requests in a run, and the final conversation.

    Of requests that each go on with the one before only the last is there: it holds the others.
    """
    from loom_core.agent.recorder import RunState

    log = await journal.claim(run_id)
    assert log is not None
    asked: list[list[Message]] = []
    async with log:
        for number, step in enumerate(log.steps):
            if step.event.type == "model_start":
                history = RunState.restore(log.steps[: number + 1]).history
                if asked and history[: len(asked[-1])] == asked[-1]:
                    asked.pop()
                asked.append(history)
        return asked, RunState.restore(log.steps).conversation()


if __name__ == "__main__":
    crash_run(
        (__doc__ or "").split("\n", 1)[0],
        _ACTOR,
        name="loom-agent-crash",
        effects=Effects,
        findings=lambda effects: Findings(effects.done),
    )
