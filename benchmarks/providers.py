"""Overhead of Loom's language-model providers over the vendors' own SDKs.

    python benchmarks/providers.py
    python benchmarks/providers.py --tokens 5000 --calls 200 --rounds 15

A server in a process of its own sends answers that are ready beforehand, as fast as it can
(`provider_server.py`). The bare SDK and the provider over the same SDK read them by turns, in one process:
streams of one token a chunk, and whole answers one after the other, each with a tool and a conversation of
some length. Markdown is printed: microseconds of processor time a token and a call, the median of all rounds,
and the ratio of the two, the median of the rounds' ratios. A model takes some 10,000 µs for a token.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import subprocess
import sys
import time
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import anthropic
import openai

from loom_core.llm.hosted.providers import AnthropicProvider, OpenAICompatibleProvider
from loom_core.llm.interface import ToolSpec

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator

    from loom_core.llm.interface import LLMProvider

_SCHEMA = {
    "type": "object",
    "properties": {"query": {"type": "string"}, "limit": {"type": "integer"}},
    "required": ["query"],
}
_TOOL = ToolSpec("search", "Search the knowledge base.", _SCHEMA)
_MESSAGES: list[dict[str, Any]] = [
    {"role": "system", "content": "Answer from the knowledge base. 请引用来源。"},
    *(
        {"role": role, "content": f"{text} ({number})"}
        for number in range(10)
        for role, text in (("user", "What is a knowledge graph?"), ("assistant", "知识图谱是一种图。" * 20))
    ),
    {"role": "user", "content": "And what is it good for?"},
]


class Pair(NamedTuple):
    """The same work by the bare SDK and by Loom; each gives how many tokens or calls it did."""

    name: str
    unit: str
    bare: Callable[[], Awaitable[int]]
    ours: Callable[[], Awaitable[int]]


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("--tokens", type=int, default=2000, metavar="N", help="of a stream")
    arguments.add_argument(
        "--calls", type=int, default=100, metavar="N", help="whole answers, one after the other"
    )
    arguments.add_argument("--rounds", type=int, default=15)
    args = arguments.parse_args()
    with served(args.tokens) as address:
        asyncio.run(measure(address, calls=args.calls, rounds=args.rounds))


@contextmanager
def served(tokens: int) -> Iterator[str]:
    """The address of a server that answers with so many tokens."""
    program = Path(__file__).with_name("provider_server.py")
    with subprocess.Popen(
        [sys.executable, program, str(tokens)], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


async def measure(address: str, *, calls: int, rounds: int) -> None:
    """Do all pairs by turns and print what they took."""
    bare_openai = openai.AsyncOpenAI(api_key="x", base_url=f"{address}/v1", max_retries=0)
    bare_anthropic = anthropic.AsyncAnthropic(api_key="x", base_url=address, max_retries=0)
    compatible = OpenAICompatibleProvider(base_url=f"{address}/v1", model="m", api_key="x")
    claude = AnthropicProvider(base_url=address, model="claude-sonnet-5-5", api_key="x")
    pairs = [
        Pair(
            "chat completions, streamed",
            "token",
            partial(openai_stream, bare_openai),
            partial(our_stream, compatible),
        ),
        Pair(
            "Anthropic messages, streamed",
            "token",
            partial(claude_stream, bare_anthropic),
            partial(our_stream, claude),
        ),
        Pair(
            "chat completions, whole",
            "call",
            partial(openai_calls, bare_openai, calls),
            partial(our_calls, compatible, calls),
        ),
        Pair(
            "Anthropic messages, whole",
            "call",
            partial(claude_calls, bare_anthropic, calls),
            partial(our_calls, claude, calls),
        ),
    ]
    print("| what | unit | SDK µs | Loom µs | ratio |\n|---|---|---|---|---|")
    for pair in pairs:
        await pair.bare(), await pair.ours()  # connections, imports
        found = [(await taken(pair.bare), await taken(pair.ours)) for _ in range(rounds)]
        bare, ours = (statistics.median(one) for one in zip(*found, strict=True))
        ratio = statistics.median(ours / bare for bare, ours in found)
        print(f"| {pair.name} | {pair.unit} | {bare:.1f} | {ours:.1f} | **{ratio:.2f}** |", flush=True)
    await compatible.aclose()
    await claude.aclose()
    await bare_openai.close()
    await bare_anthropic.close()


async def taken(work: Callable[[], Awaitable[int]]) -> float:
    """Microseconds of processor time for a token or a call."""
    started = time.process_time()
    count = await work()
    return (time.process_time() - started) / count * 1e6


_OPENAI: dict[str, Any] = {
    "model": "m",
    "messages": _MESSAGES,
    "tools": [
        {
            "type": "function",
            "function": {"name": _TOOL.name, "description": _TOOL.description, "parameters": _SCHEMA},
        }
    ],
    "max_tokens": 4096,
}
_CLAUDE: dict[str, Any] = {
    "model": "claude-sonnet-5-5",
    "system": _MESSAGES[0]["content"],
    "messages": _MESSAGES[1:],
    "tools": [{"name": _TOOL.name, "description": _TOOL.description, "input_schema": _SCHEMA}],
    "max_tokens": 4096,
}


async def openai_stream(client: openai.AsyncOpenAI) -> int:
    """Read a stream as the SDK gives it, as a program would."""
    options = {"include_usage": True}
    stream = await client.chat.completions.create(**_OPENAI, stream=True, stream_options=options)
    deltas = [choice.delta async for chunk in stream for choice in chunk.choices]
    return sum(bool(delta.content) for delta in deltas)


async def claude_stream(client: anthropic.AsyncAnthropic) -> int:
    """Read a stream as the SDK gives it, as a program would."""
    stream = await client.messages.create(**_CLAUDE, stream=True)
    deltas = [event.delta async for event in stream if event.type == "content_block_delta"]
    return sum(delta.type == "text_delta" for delta in deltas)


async def our_stream(provider: LLMProvider) -> int:
    """Read a stream as Loom gives it."""
    chunks = [chunk async for chunk in provider.chat_stream(_MESSAGES, tools=[_TOOL])]
    return sum(chunk.kind == "text" for chunk in chunks)


async def openai_calls(client: openai.AsyncOpenAI, calls: int) -> int:
    for _ in range(calls):
        answer = await client.chat.completions.create(**_OPENAI)
        assert answer.choices[0].message.content
    return calls


async def claude_calls(client: anthropic.AsyncAnthropic, calls: int) -> int:
    for _ in range(calls):
        answer = await client.messages.create(**_CLAUDE)
        assert answer.content
    return calls


async def our_calls(provider: LLMProvider, calls: int) -> int:
    for _ in range(calls):
        assert (await provider.chat(_MESSAGES, tools=[_TOOL])).content
    return calls


if __name__ == "__main__":
    main()
