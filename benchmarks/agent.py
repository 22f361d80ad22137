"""Overhead of a step of the agent loop, next to other frameworks, and a thousand concurrent runs.

    uv venv FOLDER
    uv pip install --python FOLDER/bin/python --require-hashes -r requirements/agent-frameworks.txt
    python benchmarks/agent.py steps FOLDER/bin/python
    python benchmarks/agent.py runs --count 1000

`steps`: the same scripted runs by turns in Loom (with its journal in a file; with everything on; with an
audit log, too) and in openai-agents, pydantic-ai and langgraph, each in a process of its own
(`agent_runs.py`), PYTHON being one that has them. Markdown is printed: milliseconds of processor time and of
wall time for a step with one call, and for one more call of a turn that has several; the median of all
rounds, and how many times Loom's. A real model takes some 1,000 ms for a step.

`runs`: so many runs at the same time in one process, each of several steps, with a model that takes a while.
Printed are the memory, and how long the runs took next to one alone.
"""

from __future__ import annotations

import argparse
import asyncio
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import NamedTuple

from bases import percentile

_STEPS, _TURNS, _CALLS = 50, 10, 20
_PROGRAM = Path(__file__).with_name("agent_runs.py")


class Took(NamedTuple):
    """Seconds of processor time and of wall time."""

    processor: float
    wall: float


class Framework:
    """A framework in a process of its own."""

    def __init__(self, python: str, name: str, *more: str) -> None:
        self.name = name
        self._process = subprocess.Popen(
            [python, str(_PROGRAM), name, *more], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def took(self, steps: int, calls: int) -> Took:
        """Make a run of so many turns with so many calls each."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(steps, calls, file=self._process.stdin, flush=True)
        processor, wall = map(float, self._process.stdout.readline().split())
        return Took(processor, wall)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    commands = arguments.add_subparsers(dest="command", required=True)
    steps = commands.add_parser("steps", help="next to other frameworks")
    steps.add_argument("python", metavar="PYTHON", help="an interpreter that has the others")
    steps.add_argument("--rounds", type=int, default=15)
    runs = commands.add_parser("runs", help="many at once")
    runs.add_argument("--count", type=int, default=1000)
    runs.add_argument("--steps", type=int, default=5)
    runs.add_argument("--seconds", type=float, default=1.0, help="that the model takes for a turn")
    args = arguments.parse_args()
    with tempfile.TemporaryDirectory(prefix="loom-agent-") as folder:
        if args.command == "steps":
            compare(args.python, folder, rounds=args.rounds)
        else:
            asyncio.run(at_once(Path(folder), count=args.count, steps=args.steps, seconds=args.seconds))


def compare(python: str, folder: str, *, rounds: int) -> None:
    """Do the same runs by turns and print what they took."""
    with ExitStack() as stack:
        ours = ("loom", "loom-everything", "loom-audited")
        frameworks = [Framework(sys.executable, name, folder) for name in ours]
        frameworks += [Framework(python, name) for name in ("openai-agents", "pydantic-ai", "langgraph")]
        for framework in frameworks:
            stack.callback(framework.close)
            framework.took(2, 2)  # imports
        found = [[_round(framework) for framework in frameworks] for _ in range(rounds)]
    head = "step ms | step wall ms | call ms | call wall ms | step | call"
    print(f"| framework | {head} |\n|{'---|' * 7}")
    columns = [
        [statistics.median(each[place][number] for each in found) * 1000 for number in range(4)]
        for place in range(len(frameworks))
    ]
    for framework, column in zip(frameworks, columns, strict=True):
        numbers = " | ".join(f"{number:.2f}" for number in column)
        times = " | ".join(f"{column[number] / columns[0][number]:.1f}" for number in (0, 2))
        print(f"| {framework.name} | {numbers} | {times} |")


def _round(framework: Framework) -> tuple[float, float, float, float]:
    """Processor and wall time of a step, then of one more call of a turn."""
    step = framework.took(_STEPS, 1)
    few, many = framework.took(_TURNS, 1), framework.took(_TURNS, _CALLS)
    more = _TURNS * (_CALLS - 1)
    return (
        step.processor / _STEPS,
        step.wall / _STEPS,
        (many.processor - few.processor) / more,
        (many.wall - few.wall) / more,
    )


async def at_once(folder: Path, *, count: int, steps: int, seconds: float) -> None:
    """Drive so many runs in one host and print what they took."""
    from agent_runs import add

    from loom_core.agent.agent import Agent
    from loom_core.llm.interface import ChatRequest
    from loom_core.llm.messages import ToolCallPart
    from loom_core.llm.mock import MockAnswer, MockProvider
    from loom_core.runs.host import RunHost
    from loom_core.runs.journal import Journal
    from loom_core.tools.function_tool import tool

    def answer(request: ChatRequest) -> MockAnswer | str:
        step = sum(message.role == "assistant" for message in request.messages)
        if step == steps:
            return MockAnswer("All of it is done. 完成了。", delay=seconds / 10)
        return MockAnswer(calls=(ToolCallPart(f"c{step}", "add", {"a": step, "b": 1}),), delay=seconds / 3)

    journal = Journal(folder / "runs.db")
    agent = Agent(MockProvider(answer), tools=[tool(add, read_only=True, open_world=False)], journal=journal)

    async def whole() -> float:
        began = time.perf_counter()
        run = await host.start(agent.request("Add the numbers. 把这些数加起来。"))
        while run.status != "completed":
            run = await journal.wait_until_idle(run.id, after=run.last_seq, seconds=45)
            assert run.status in {"working", "completed"}, run.problem
        return time.perf_counter() - began

    async with RunHost(journal, {agent.name: agent}) as host:
        alone = await whole()
        before, processor = _resident(), time.process_time()
        began = time.perf_counter()
        taken = await asyncio.gather(*(whole() for _ in range(count)))
        wall, processor = time.perf_counter() - began, time.process_time() - processor
    await agent.aclose()
    p50, p99 = (percentile(taken, share) for share in (50, 99))
    print(f"{count} runs of {steps} steps with a call each, at once; one alone takes {alone:.2f} s:")
    print(f"all of them {wall:.1f} s, p50 {p50:.2f} s, p99 {p99:.2f} s")
    print(f"{processor / count / steps * 1e3:.2f} ms of the processor for a step")
    print(f"memory {before:.0f} MiB before, {_resident():.0f} MiB peak")


def _resident() -> float:
    """MiB held at most so far."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
