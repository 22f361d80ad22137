"""Compressors of programs and plugins, in place of Loom's own compaction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.agent import Agent, Compaction, Compressor, Hooks, Journal, Run, Veto
from loom_core.agent.compaction.compaction import CompactionResult, Compactor
from loom_core.errors import ConfigError, LLMError
from loom_core.llm import (
    AssistantMessage,
    ChatRequest,
    Message,
    ToolCallPart,
    ToolMessage,
    UserMessage,
    estimate_message,
)
from loom_core.llm.messages import TextPart
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.tools import tool

_GOAL = "读完这本书"


class NewestCalls:
    """Keeps the goal, and the newest calls that fit."""

    def __init__(self) -> None:
        self.targets: list[int] = []

    async def compress(self, messages: Sequence[Message], *, goal: str, target: int) -> Sequence[Message]:
        self.targets.append(target)
        (first,) = [each for each in messages if isinstance(each, UserMessage) and goal in each.text]
        kept: list[Message] = []
        for place in range(len(messages) - 1, 0, -1):
            if isinstance(messages[place], AssistantMessage):
                if sum(map(estimate_message, messages[place:])) > target:
                    break
                kept = list(messages[place:])
        return [first, *kept]


class Returning:
    """Returns or raises what it has been given."""

    def __init__(self, make: Callable[[Sequence[Message]], Any]) -> None:
        self.calls = 0
        self._make = make

    async def compress(self, messages: Sequence[Message], *, goal: str, target: int) -> Sequence[Message]:
        self.calls += 1
        return self._make(messages)


class Watching(Hooks):
    def __init__(self, veto: Veto | None = None) -> None:
        self.after: list[CompactionResult] = []
        self._veto = veto

    async def before_compaction(self, run: Run, history: Sequence[Message]) -> Veto | None:
        return self._veto

    async def after_compaction(self, run: Run, compacted: CompactionResult) -> None:
        self.after.append(compacted)


def _reader(
    compressor: Compressor, hooks: Hooks, *, calls: int = 6, path: Path | None = None, dies: bool = False
) -> tuple[Agent, MockProvider]:
    """An agent that reads some pages, and then answers or fails, and its model."""

    @tool(read_only=True, open_world=False)
    async def page(number: int) -> str:
        """Read a page."""
        return f"第{number}页：" + "知识图谱的内容。" * 200

    def read(request: ChatRequest) -> str | MockAnswer:
        turn = len(llm.calls) - 1
        if turn < calls:
            return MockAnswer(calls=(ToolCallPart(f"p{turn}", "page", {"number": turn}),))
        if dies:
            raise LLMError("The model is gone.", failure="rejected")
        return "read"

    llm = MockProvider(read)
    compaction = Compaction(window=8000, compressor=compressor)
    return Agent(llm, tools=[page], hooks=[hooks], compaction=compaction, journal=Journal(path)), llm


async def test_a_compressor_shortens_a_conversation_and_the_journal_has_the_result(tmp_path: Path) -> None:
    compressor, hooks = NewestCalls(), Watching()
    agent, llm = _reader(compressor, hooks, path=tmp_path / "runs.db", dies=True)
    async with agent:
        died = await agent.run(_GOAL)
        types = [event.type for event in await agent.journal.events(died.run_id)]
    assert died.status == "failed"
    assert types.count("compression_applied") == len(compressor.targets) == len(hooks.after) > 0
    assert all(each.after < each.before and each.dropped > 0 for each in hooks.after)

    unused = Returning(list)
    agent, llm_now = _reader(unused, Watching(), calls=0, path=tmp_path / "runs.db")
    async with agent:
        assert (await agent.resume(died.run_id)).output == "read"
    sent = [each.text for each in llm_now.calls[0].messages]
    assert sent == [each.text for each in llm.calls[-1].messages]
    assert _GOAL in sent[1]
    assert not any("第0页" in text for text in sent)
    assert unused.calls == 0, "it is not compacted a second time"


async def test_a_veto_keeps_the_compressor_from_being_called() -> None:
    compressor = NewestCalls()
    agent, _ = _reader(compressor, Watching(Veto("keep all")))
    async with agent:
        assert (await agent.run(_GOAL)).output == "read"
    assert compressor.targets == []


async def test_a_compressor_that_hangs_is_given_up(caplog: pytest.LogCaptureFixture) -> None:
    class Hanging:
        async def compress(self, messages: Sequence[Message], *, goal: str, target: int) -> Sequence[Message]:
            await anyio.sleep_forever()
            return messages

    compactor = Compactor(MockProvider([]), window=8000, compressor=Hanging(), seconds=0.01)
    assert await compactor.compact([UserMessage((TextPart(_GOAL),))], goal=_GOAL) is None
    assert "Hanging failed: TimeoutError" in caplog.text


def _fail(messages: Sequence[Message]) -> Sequence[Message]:
    raise OSError("no service")


@pytest.mark.parametrize(
    ("make", "problem"),
    [
        (_fail, "Returning failed: OSError: no service"),
        (lambda messages: None, "Returning failed: TypeError"),
        (lambda messages: ["a text"], "something that is not a message"),
        (lambda messages: messages[1:3], "a conversation without the goal"),
        (lambda messages: [messages[0], messages[2]], "a result without its call"),
        (lambda messages: [*messages[:2], *messages[3:5]], "a call without its result"),
        (lambda messages: messages, "there should be fewer than"),
    ],
)
async def test_a_result_that_cannot_be_used_changes_nothing(
    make: Callable[[Sequence[Message]], Any], problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    history: list[Message] = [UserMessage((TextPart(_GOAL),))]
    for number in range(10):
        history.append(AssistantMessage((ToolCallPart(f"c{number}", "page", {}),)))
        history.append(ToolMessage(f"c{number}", (TextPart("内容" * 300),)))
    compressor = Returning(make)
    compactor = Compactor(MockProvider([]), window=8000, compressor=compressor)
    for _ in range(5):
        assert await compactor.compact(history, goal=_GOAL) is None
    assert problem in caplog.text
    assert compressor.calls == 3, "the circuit breaker opens"


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"compressor": "newest"}, "'newest' is not a compressor. Give an object with"),
        ({"compressor": NewestCalls}, "is not a compressor"),
        ({"compressor": NewestCalls(), "llm": MockProvider([])}, "Give either the model or the compressor"),
    ],
)
def test_settings_that_do_not_fit_are_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Compaction(**settings)
