"""Compare two trees of Loom in one run: start-up, a query, an `add`, an agent's step, a turn of a flow.

    python benchmarks/trees.py BEFORE [AFTER] [--rounds 9]

BEFORE and AFTER are folders of the repository (`git worktree add`); AFTER is this one by default. Each round
starts a process of each tree, in the other order than the round before, with this interpreter and its
packages. What is printed is the ratio of processor time and of waiting, AFTER to BEFORE: the median of the
rounds' ratios, and their quartiles. Only public names are used, so that older trees can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path

import anyio

_HERE = Path(__file__).resolve()
_SERVERS = ("kb", "query", "agent", "flow")
_DOCUMENTS, _QUESTIONS, _ADDS, _STEPS, _TURNS = 400, 60, 15, 60, 60
_START = json.dumps(
    {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "initialize",
        "params": {
            "protocolVersion": "2025-11-25",
            "capabilities": {},
            "clientInfo": {"name": "loom-benchmark", "version": "1"},
        },
    }
)
_TOOLS = json.dumps({"jsonrpc": "2.0", "id": 2, "method": "tools/list"})

Took = dict[str, tuple[float, float]]
"""Milliseconds of the processor and of waiting, by what was done."""


def main() -> None:
    """Compare, and print a table."""
    arguments = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    arguments.add_argument("before", type=Path)
    arguments.add_argument("after", type=Path, nargs="?", default=_HERE.parents[1])
    arguments.add_argument("--rounds", type=int, default=9)
    arguments.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    args = arguments.parse_args()
    if args.inside:
        print(json.dumps(anyio.run(_measure)))
        return
    rounds: list[tuple[Took, Took]] = []
    for number in range(-1, args.rounds):  # the first compiles modules and fills the disk cache
        order = [args.before, args.after] if number % 2 else [args.after, args.before]
        took = {tree: _run(tree) for tree in order}
        if number >= 0:
            rounds.append((took[args.before], took[args.after]))
    columns = ["", "before, ms", "after, ms", "processor, after to before", "waiting, after to before"]
    print(f"| {' | '.join(columns)} |\n{'|---' * len(columns)}|")
    for what in rounds[0][0]:
        before, after = ([each[side][what] for each in rounds] for side in (0, 1))
        shown = [f"{statistics.median(wall for _, wall in side):.1f}" for side in (before, after)]
        pairs = list(zip(before, after, strict=True))
        ratios = [_ratios([new[part] / old[part] for old, new in pairs]) for part in (0, 1)]
        print("|", " | ".join([what, *shown, *ratios]), "|")


def _ratios(ratios: list[float]) -> str:
    low, middle, high = statistics.quantiles(ratios, n=4)
    return f"{middle:.2f} ({low:.2f} to {high:.2f})"


def _run(tree: Path) -> Took:
    """Measure a tree in processes of its own."""
    paths = [tree, *(tree / "servers" / name for name in _SERVERS), tree / "benchmarks"]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths))}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    with tempfile.TemporaryDirectory() as home:
        environment["LOOM_HOME"] = home
        starts: Took = {}
        for module in ("loom_kb", "loom_agent"):
            starts[f"start of {module}, to its tools"] = _start(module, tree, environment)
        inside = subprocess.run(
            [sys.executable, str(_HERE), "--inside", str(tree)],
            env=environment, cwd=tree, check=True, capture_output=True, text=True,
        )  # fmt: skip
    return starts | {name: (cpu, wall) for name, (cpu, wall) in json.loads(inside.stdout).items()}


def _start(module: str, tree: Path, environment: dict[str, str]) -> tuple[float, float]:
    used, began = os.times(), time.perf_counter()
    with subprocess.Popen(
        [sys.executable, "-m", module],
        env=environment, cwd=tree, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
        text=True,
    ) as process:  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        for line in (_START, _TOOLS):
            process.stdin.write(f"{line}\n")
            process.stdin.flush()
            process.stdout.readline()
        waited = time.perf_counter() - began
        process.stdin.close()
        process.wait(30)
    now = os.times()
    spent = now.children_user + now.children_system - used.children_user - used.children_system
    return 1000 * spent, 1000 * waited


async def _measure() -> Took:
    return {**await _knowledge(), "agent step with a tool": await _agent(), "turn of a flow": await _flow()}


async def _each(number: int, do: Callable[[int], Awaitable[object]]) -> tuple[float, float]:
    """The mean processor time and the median waiting of some calls, after a few that are not counted."""
    waits, used = list[float](), 0.0
    for index in range(-5, number):
        if index == 0:
            used = time.process_time()
        began = time.perf_counter()
        await do(index)
        waits.append(time.perf_counter() - began)
    return 1000 * (time.process_time() - used) / number, 1000 * statistics.median(waits[5:])


@contextmanager
def _timed(into: Took, name: str) -> Generator[None]:
    used, began = time.process_time(), time.perf_counter()
    yield
    into[name] = 1000 * (time.process_time() - used), 1000 * (time.perf_counter() - began)


async def _knowledge() -> Took:
    from datasets import read_dataset

    from loom_core.embedding import create_embedder
    from loom_core.knowledge import GraphRAGKnowledgeBase

    dataset = read_dataset(_HERE.parents[2] / "shared" / "data" / "2wiki-dev164")
    questions = [question.text for question in dataset.questions[:_QUESTIONS]]
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"), path=Path(os.environ["LOOM_HOME"]) / "compared"
    )
    took: Took = {}
    with _timed(took, f"{_DOCUMENTS} documents added"):
        await knowledge_base.add_documents(list(dataset.documents[:_DOCUMENTS]))
    took["query"] = await _each(_QUESTIONS, lambda n: knowledge_base.query(questions[n % _QUESTIONS]))
    text = "# Note {0}\n\nAda Lovelace wrote note {0} in London for Charles Babbage."
    took["add of a text"] = await _each(_ADDS, lambda n: knowledge_base.add_texts([text.format(n + 100)]))
    knowledge_base.close()
    return took


async def _agent() -> tuple[float, float]:
    from loom_core import Agent, tool
    from loom_core.testing import MockLLM, call

    @tool(read_only=True)
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    async def run(_index: int) -> None:
        agent = Agent(MockLLM([call("double", number=3), "6"]), tools=[double])
        answer = await agent.run("What is twice 3?")
        await agent.aclose()
        assert "6" in str(answer)

    return await _each(_STEPS, run)


async def _flow() -> tuple[float, float]:
    from loom_core import tool
    from loom_core.flow import WorkflowOrchestrator
    from loom_core.flow.config import parse_flow_file

    @tool
    def note(reason: str) -> str:
        """Note a reason."""
        return reason

    steps = [
        {"stepId": "note", "tool": "note", "parameters": [{"name": "reason", "value": "$inputs.reason"}]}
    ]
    days = {"type": "integer", "title": "天数", "minimum": 1}
    leave = {
        "flow_id": "leave",
        "trigger_patterns": [r"请(?P<days>[\d一二两三四五六七八九十]+)天假", "take leave"],
        "steps": steps,
        "response": "好",
        "input_schema": {
            "type": "object",
            "properties": {"days": days, "reason": {"type": "string", "title": "事由"}},
            "required": ["days", "reason"],
        },
    }
    others = [{**leave, "flow_id": f"other_{n}", "trigger_patterns": [f"办理{n}号业务"]} for n in range(30)]
    loaded = parse_flow_file(json.dumps({"flows": [leave, *others]}), tools=["note"])
    async with WorkflowOrchestrator(loaded, tools=[note], permissions="allow") as orchestrator:

        async def turns(_index: int) -> None:
            asked = await orchestrator.query("我要请三天假")
            answered = await orchestrator.query("感冒了", session_id=asked.session_id)
            assert answered.status == "completed", answered

        return await _each(_TURNS, turns)


if __name__ == "__main__":
    main()
