"""Measurements of whole messages for `flow.py`: against the bare request, and with a slow knowledge API."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bases import percentile

if TYPE_CHECKING:
    from loom_core.flow.config import LoadedFlows
    from loom_core.flow.orchestrator import WorkflowOrchestrator
    from loom_core.llm.interface import ChatRequest
    from loom_core.tools.interface import JsonValue

_WARM = 20
_MODEL_SECONDS = 0.8
_OFTEN = 20  # what takes milliseconds is measured so often in a round
_SLOW_SECONDS = 3.0
_SCHEMA = {
    "type": "object",
    "properties": {"number": {"type": "string", "title": "订单号"}},
    "required": ["number"],
}


class Took(NamedTuple):
    """Milliseconds of one message, of wall time and of this process's processor."""

    wall: float
    processor: float


def flow_file(api: str, method: str = "POST", **more: JsonValue) -> LoadedFlows:
    """A flow of one endpoint, among thirty whose patterns do not fit."""
    from loom_core.flow.config import parse_flow_file

    order = {
        "flow_id": "order",
        "name": "查订单",
        "trigger_patterns": [r"订单\s*(?P<number>[A-Z]*\d+)", r"\border (?P<number>[A-Z]*\d+)"],
        "endpoint": f"{method} /order",
        "response": "{$response.body#/text}",
        "input_schema": _SCHEMA,
    }
    others = [
        {"flow_id": f"other_{at}", "trigger_patterns": [f"办理{at}号业务", rf"\bbusiness {at}\b"]}
        for at in range(30)
    ]
    written = {"flow_url": api, "net": {"allow": ["127.0.0.1"], "per_minute": None}}
    return parse_flow_file(json.dumps({**written, "flows": [order, *others], **more}))


@contextmanager
def api() -> Generator[str]:
    """The API in a process of its own; its address."""
    command = [sys.executable, str(Path(__file__).with_name("flow_api.py"))]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        yield f"http://127.0.0.1:{process.stdout.readline().strip()}"
        process.communicate()


async def overhead(method: str, *, rounds: int, messages: int) -> None:
    """Print what each way from a message to the answer of one endpoint takes, by turns."""
    with api() as address, tempfile.TemporaryDirectory(prefix="loom-flow-") as folder:
        async with _ways(address, method, Path(folder)) as ways:
            took: dict[str, list[Took]] = {name: [] for name in ways}
            medians: dict[str, list[float]] = {name: [] for name in ways}
            for round_ in range(rounds + 1):
                for name, way in ways.items():
                    found = [await _timed(way, at) for at in range(messages if round_ else _WARM)]
                    if round_:
                        took[name] += found
                        medians[name].append(statistics.median(each.wall for each in found))
    bare = next(iter(ways))
    print(f"\n{method}\n\n| way | median | p95 | processor, mean | more than bare | times bare |")
    print("|---|---|---|---|---|---|")
    for name, found in took.items():
        walls = [each.wall for each in found]
        median = statistics.median(walls)
        ratio = statistics.median(a / b for a, b in zip(medians[name], medians[bare], strict=True))
        more = median - statistics.median(each.wall for each in took[bare])
        print(
            f"| {name} | {median:.2f} ms | {percentile(walls, 95):.2f} ms | "
            f"{statistics.mean(each.processor for each in found):.2f} ms | "
            f"{'' if name == bare else f'{more:.2f} ms'} | {ratio:.1f} |"
        )


@asynccontextmanager
async def _ways(address: str, method: str, folder: Path) -> AsyncGenerator[dict[str, Callable[[str], Any]]]:
    import httpx2

    from loom_core.flow.executor import FlowExecutor
    from loom_core.flow.expressions import ExpressionValues
    from loom_core.flow.http import EndpointCaller
    from loom_core.flow.orchestrator import WorkflowOrchestrator
    from loom_core.flow.policy.router import FlowRouter
    from loom_core.runs.journal import Journal

    loaded = flow_file(address, method)
    flow = loaded.file.flows[0]
    endpoint = loaded.file.endpoint_of(flow)
    router = FlowRouter(loaded.file.flows, ambiguous=loaded.file.ambiguous)
    async with AsyncExitStack() as stack:
        client = await stack.enter_async_context(httpx2.AsyncClient())
        caller = await stack.enter_async_context(EndpointCaller(loaded.file))
        journals = [Journal(folder / f"runs-{at}.db") for at in range(2)]
        for journal in journals:
            stack.push_async_callback(journal.aclose)
        executor = FlowExecutor(loaded, journal=journals[0], caller=caller)
        assistant = await stack.enter_async_context(
            WorkflowOrchestrator(loaded, caller=caller, journal=journals[1], look_seconds=None)
        )

        async def bare(message: str) -> None:
            inputs = {"number": message.split()[-1]}
            sent: dict[str, Any] = {"params": inputs} if method == "GET" else {"json": inputs}
            response = await client.request(method, f"{address}/order", **sent)
            assert response.json()["text"]

        async def called(message: str) -> None:
            result = await caller.call(endpoint, ExpressionValues(inputs={"number": message.split()[-1]}))
            assert result.body["text"]

        async def executed(message: str) -> None:
            match = router.match(message)
            assert match.flow is not None
            run = await executor.execute(match.flow.flow_id, message, match.parameters)
            assert run.status == "completed", run.problem

        async def talked(message: str) -> None:
            reply = await assistant.query(message)
            assert reply.status == "completed", reply

        yield {
            "bare httpx2 call": bare,
            "EndpointCaller": called,
            "FlowRouter, FlowExecutor, journal": executed,
            "WorkflowOrchestrator.query, a new session": talked,
        }


async def _timed(way: Callable[[str], Awaitable[None]], at: int) -> Took:
    began, processor = time.perf_counter(), time.process_time()
    await way(f"帮我看一下订单 BO{10_000 + at}")
    return Took(1000 * (time.perf_counter() - began), 1000 * (time.process_time() - processor))


async def decisions(*, rounds: int) -> None:
    """Print how long messages take that need knowledge and that do not, without, with fast and slow ones."""
    kinds = {
        "rules begin a flow": "订单 BO{}",
        "the model begins a flow": "我的包裹怎么还没到{}",
        "the model answers from knowledge": "你们周六几点开门{}",
    }
    sources = {"none": None, "at once": 0.0, f"after {_SLOW_SECONDS:g} s": _SLOW_SECONDS}
    took: dict[tuple[str, str], list[float]] = {}
    async with AsyncExitStack() as stack:
        address = stack.enter_context(api())
        assistants = {
            name: await stack.enter_async_context(_assistant(address, seconds))
            for name, seconds in sources.items()
        }
        for round_ in range(rounds + 1):  # the first one opens everything
            for kind, message in kinds.items():
                times = _OFTEN if kind.startswith("rules") else 1
                for name, assistant in [*assistants.items()] * times:
                    began = time.perf_counter()
                    await assistant.query(message.format(round_))
                    if round_:
                        took.setdefault((name, kind), []).append(1000 * (time.perf_counter() - began))
    print(f"| knowledge answers | {' | '.join(kinds)} |")
    print(f"|---|{'---|' * len(kinds)}")
    for name in sources:
        print(f"| {name} | {' | '.join(f'{statistics.median(took[name, kind]):.1f} ms' for kind in kinds)} |")


def _assistant(address: str, seconds: float | None) -> WorkflowOrchestrator:
    """With a model that takes a while, and an API for knowledge that takes so many seconds, or none."""
    from loom_core.flow.orchestrator import WorkflowOrchestrator
    from loom_core.llm.mock import MockProvider

    more = {} if seconds is None else {"retrieve_knowledge_url": f"/knowledge/{seconds:g}"}
    loaded = flow_file(address, knowledge_cache_seconds=0, **more)
    begin = json.dumps({"action": "flow", "target": "order", "confidence": 0.9, "reason": "r"})
    respond = json.dumps({"action": "respond", "confidence": 0.9, "reason": "r"})

    def model(request: ChatRequest) -> str:
        said = request.messages[-1].text
        return begin if "包裹" in said else respond if request.output else "好。"

    llm = MockProvider(model, delay=_MODEL_SECONDS)
    return WorkflowOrchestrator(loaded, llm=llm, look_seconds=None)
