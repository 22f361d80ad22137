from __future__ import annotations

import logging
from itertools import pairwise

import anyio
import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.compaction.compaction import DEFAULT_RESERVE, CompactionResult, Compactor, ContextUsage
from loom_core.agent.compaction.summary import SECTIONS, is_summary
from loom_core.agent.compaction_settings import Compaction
from loom_core.errors import ConfigError, InvalidInputError, LLMError
from loom_core.llm.hosted.limits import CircuitBreaker
from loom_core.llm.interface import ChatRequest, ToolSpec, Usage
from loom_core.llm.messages import (
    AssistantMessage,
    ImagePart,
    Message,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.commands import Reply
from loom_core.tools.function_tool import tool

_GOAL = "把这些文件里的知识图谱整理成一份报告"
_SUMMARY = "\n\n".join(f"## {section.title_zh}\n第一步已完成。" for section in SECTIONS)


def _user(text: str) -> UserMessage:
    return UserMessage((TextPart(text),))


def _work(count: int, *, result: str = "结果" * 100, start: int = 0) -> list[Message]:
    messages: list[Message] = []
    for number in range(start, start + count):
        messages += [
            AssistantMessage(
                (
                    ReasoningPart(f"想一想 {number}", "thinking", {"signature": f"s{number}"}),
                    TextPart(f"看第 {number} 个文件"),
                    ToolCallPart(f"c{number}", "read_file", {"path": f"文件 {number}.md"}),
                ),
                provider="anthropic",
                model="claude-sonnet-5-5",
            ),
            ToolMessage(f"c{number}", (TextPart(f"{number}: {result}"),)),
        ]
    return messages


def _history(count: int = 40, *, result: str = "结果" * 100) -> list[Message]:
    return [SystemMessage("You are an agent."), _user(_GOAL), *_work(count, result=result)]


def _compactor(llm: MockProvider | None = None, *, window: int = 8000, **more: object) -> Compactor:
    return Compactor(llm or MockProvider([_SUMMARY] * 9), window=window, clock=lambda: 0.0, **more)  # pyright: ignore[reportArgumentType]


async def _compacted(history: list[Message], compactor: Compactor, *, goal: str = _GOAL) -> CompactionResult:
    compacted = await compactor.compact(history, goal=goal, fill=compactor.measure(history))
    assert compacted is not None
    return compacted


def _is_part_of(some: list[Message] | tuple[Message, ...], history: list[Message]) -> bool:
    """Whether all of some messages are the objects of a history, in its order."""
    places = [next(place for place, each in enumerate(history) if each is message) for message in some]
    return all(first < second for first, second in pairwise(places))


def test_without_a_report_everything_that_is_sent_is_estimated():
    compactor = _compactor()
    bare = compactor.measure([_user("你好")])
    picture = UserMessage((TextPart("你好"), ImagePart(b"png")))

    assert 0 < bare.used < 20
    assert compactor.measure([SystemMessage("说" * 30), _user("你好")]).used > bare.used + 15
    assert compactor.measure([picture]).used >= bare.used + 1000
    tool = ToolSpec("search", "查找文档。" * 20, {"type": "object", "properties": {"q": {"type": "string"}}})
    assert compactor.measure([_user("你好")], tools=[tool]).used > bare.used + 60


def test_a_report_counts_for_what_it_covers_and_the_rest_is_estimated():
    compactor = _compactor(window=100_000)
    history = _history(3)
    reported = Usage(input_tokens=5000, output_tokens=300, reasoning_tokens=200)

    answered = compactor.measure(history[:-1], reported=reported, tools=[ToolSpec("t", "x" * 400)])
    with_result = compactor.measure(history, reported=reported)

    assert answered.used == 5300
    assert 5400 < with_result.used < 5500


def test_reasoning_that_the_vendor_keeps_does_not_fill_the_window():
    history: list[Message] = [_user("hi"), AssistantMessage((TextPart("ho"),))]
    reported = Usage(input_tokens=100, output_tokens=50, reasoning_tokens=40)

    assert _compactor().measure(history, reported=reported).used == 110


def test_a_server_that_reads_only_a_part_does_not_make_a_conversation_short():
    history = _history(40)
    whole = _compactor().measure(history).used

    assert _compactor().measure(history, reported=Usage(input_tokens=500)).used >= whole // 2


def test_a_report_without_an_answer_or_without_numbers_is_no_report():
    history = _history(2)
    whole = _compactor().measure(history)

    assert _compactor().measure(history, reported=Usage()) == whole
    assert _compactor().measure([_user("hi")], reported=Usage(input_tokens=5000)).used < 100


def test_room_for_the_answer_is_reserved():
    assert _compactor(window=100_000, reserve=10_000).measure([]) == ContextUsage(0, 90_000)
    assert _compactor(window=8000, reserve=100_000).measure([]).window == 6000


@pytest.mark.parametrize(
    ("used", "due"),
    [
        (0, "nothing"),
        (79, "nothing"),
        (80, "warning"),
        (91, "warning"),
        (92, "compaction"),
        (300, "compaction"),
    ],
)
def test_a_warning_comes_before_a_compaction(used: int, due: str):
    assert _compactor().due(ContextUsage(used, 100)) == due


async def test_what_is_older_becomes_a_summary_and_what_is_newer_stays_to_the_letter():
    history, llm = _history(), MockProvider([_SUMMARY])

    compacted = await _compacted(history, _compactor(llm))

    system, goal, summary, *kept = compacted.history
    assert (system, goal) == (history[0], history[1])
    assert is_summary(summary)
    assert isinstance(summary, UserMessage)
    assert "第一步已完成。" in summary.text
    assert kept
    assert all(new is old for new, old in zip(kept, history[-len(kept) :], strict=True))
    assert isinstance(kept[0], AssistantMessage)
    assert (compacted.kept, compacted.dropped) == (len(kept) + 2, len(history) - len(kept) - 2)
    assert compacted.summary == _SUMMARY
    assert compacted.usage.output_tokens > 0


async def test_afterwards_there_is_room():
    history, compactor = _history(), _compactor()

    compacted = await _compacted(history, compactor)

    fill = compactor.measure(compacted.history)
    assert compacted.before == compactor.measure(history).used
    assert abs(fill.used - compacted.after) < 10
    assert compactor.due(fill) == "nothing"
    assert 0.3 < compacted.ratio < 0.55
    assert f"{compacted.after:,}" in compacted.history[2].text


async def test_turns_that_fit_are_kept_whole():
    history: list[Message] = [SystemMessage("S")]
    for turn in range(10):
        history += [
            _user(f"第 {turn} 个问题"),
            *_work(4, start=turn * 4),
            AssistantMessage((TextPart("好"),)),
        ]

    compacted = await _compacted(history, _compactor(), goal="第 9 个问题")

    _, summary, first, *_ = compacted.history
    assert is_summary(summary)
    assert isinstance(first, UserMessage)
    assert not is_summary(first)
    assert _GOAL not in summary.text
    assert _is_part_of(compacted.history[2:], history)


async def test_the_goal_is_there_word_for_word_though_no_message_says_it_alone():
    history: list[Message] = [_user("背景资料"), *_work(40)]

    compacted = await _compacted(history, _compactor(), goal="整理\n</goal>报告")

    assert "整理\n</goal>报告" in compacted.history[0].text


async def test_a_summary_that_makes_no_room_is_not_taken(caplog: pytest.LogCaptureFixture):
    compactor = _compactor()

    assert await compactor.compact(_history(), goal=_GOAL, pinned=["事实" * 5000]) is None
    assert "would remain" in caplog.text


async def test_pinned_facts_are_there_word_for_word_every_time():
    history, compactor = _history(), _compactor()
    pinned = ["端口是 8080，不是 80", "never touch prod"]

    for start in (100, 200):
        compacted = await compactor.compact(history, goal=_GOAL, pinned=pinned)
        assert compacted is not None
        (summary,) = filter(is_summary, compacted.history)
        assert all(summary.text.count(fact) == 1 for fact in pinned)
        history = [*compacted.history, *_work(40, start=start)]


async def test_what_is_pinned_is_not_there_twice():
    said = "用简体中文回答"
    history = [*_history(), _user(said)]

    compacted = await _compactor().compact(history, goal=_GOAL, pinned=[said, "不要改动线上数据"])

    assert compacted is not None
    assert [message.text for message in compacted.history].count(said) == 1
    text = "\n".join(message.text for message in compacted.history)
    assert text.count(said) == text.count("不要改动线上数据") == 1


async def test_what_the_user_says_during_a_run_outlasts_every_compaction():
    @tool(read_only=True, open_world=False)
    async def read(number: int) -> str:
        """读一页。"""
        if number == 0:
            (run,) = await agent.journal.runs()
            await agent.send_command(run.id, Reply(text="金额一律用人民币"))
        return f"第 {number} 页：" + "山高水长" * 100

    def script(request: ChatRequest) -> MockAnswer | str:
        turn = len(llm.calls) - 1
        return MockAnswer(calls=(ToolCallPart(f"c{turn}", "read", {"number": turn}),)) if turn < 12 else "好"

    llm = MockProvider(script)
    compaction = Compaction(llm=MockProvider(lambda request: _SUMMARY), window=2000)
    async with Agent(llm, tools=[read], compaction=compaction) as agent:
        result = await agent.run(_GOAL)
        types = [event.type for event in await agent.journal.events(result.run_id)]
    assert types.count("compression_applied") >= 2
    for request in llm.calls[1:]:
        text = "\n".join(message.text for message in request.messages)
        assert text.count("金额一律用人民币") == 1


async def test_the_answer_has_the_room_that_it_is_allowed():
    agent = Agent(MockProvider([]), compaction=Compaction(window=100_000), options={"max_tokens": 20_000})
    usual = Agent(MockProvider([]), compaction=Compaction(window=100_000))
    for each, room in ((agent, 80_000), (usual, 100_000 - DEFAULT_RESERVE)):
        assert each.parts.compactor is not None
        assert (await each.parts.compactor()).measure([]).window == room
        await each.aclose()


async def test_a_second_compaction_takes_the_first_ones_place():
    llm = MockProvider(lambda request: _SUMMARY)
    compactor = _compactor(llm)
    history = _history()
    sizes: list[int] = []

    for start in range(100, 600, 100):
        compacted = await _compacted(history, compactor)
        assert sum(map(is_summary, compacted.history)) == 1
        assert compacted.history[1].text == _GOAL
        sizes.append(compacted.after)
        history = [*compacted.history, *_work(40, start=start)]

    assert "第一步已完成。" in llm.calls[1].messages[1].text
    assert max(sizes) - min(sizes) < 300


async def test_long_old_results_are_shortened_first_and_no_model_is_asked():
    llm = MockProvider([])
    history = _history(8, result="很长的结果" * 300)

    compacted = await _compacted(history, _compactor(llm, window=12_000))

    assert llm.calls == []
    assert compacted.summary == ""
    assert len(compacted.history) == len(history)
    assert compacted.history[-1] is history[-1]
    assert compacted.after <= 0.5 * 9000
    changed = sum(new is not old for new, old in zip(compacted.history, history, strict=True))
    assert 0 < changed == compacted.dropped
    assert compacted.kept == len(history) - changed


async def test_where_shortening_is_not_enough_the_kept_part_is_not_shortened():
    history = _history(30, result="很长的结果" * 240)

    compacted = await _compacted(history, _compactor(window=16_000))

    assert compacted.summary
    assert _is_part_of([each for each in compacted.history if not is_summary(each)], history)


@pytest.mark.parametrize(
    "answer", ["", "Sorry, I cannot do that.", LLMError("No such key.", failure="authentication")]
)
async def test_where_no_summary_can_be_had_nothing_changes(
    answer: str | LLMError, caplog: pytest.LogCaptureFixture
):
    history, compactor = _history(), _compactor(MockProvider([answer]))
    before = list(history)

    with caplog.at_level(logging.WARNING):
        assert await compactor.compact(history, goal=_GOAL) is None

    assert all(new is old for new, old in zip(history, before, strict=True))
    assert "is not compacted" in caplog.text


async def test_shortened_results_are_taken_where_no_summary_can_be_had_if_they_make_room():
    history = [*_history(10, result="很长的结果" * 200), *_work(8, start=50)]

    compactor = _compactor(
        MockProvider([LLMError("No room.", failure="overloaded")]), window=16_000, target=0.2
    )
    compacted = await _compacted(history, compactor)

    assert compacted.summary == ""
    assert compactor.due(compactor.measure(compacted.history)) == "nothing"


async def test_after_three_failures_the_model_is_left_alone_and_tried_again_later():
    now = 0.0
    llm = MockProvider(lambda request: "no" if len(llm.calls) <= 3 else _SUMMARY)
    breaker = CircuitBreaker(failures=3, first_pause=60.0, now=lambda: now)
    compactor = _compactor(llm, breaker=breaker)
    history = _history()

    for _ in range(10):
        assert await compactor.compact(history, goal=_GOAL) is None
    assert len(llm.calls) == 3
    now = 61.0
    assert await compactor.compact(history, goal=_GOAL) is not None
    assert await compactor.compact(history, goal=_GOAL) is not None


async def test_a_conversation_that_no_summary_can_shorten_costs_nothing(caplog: pytest.LogCaptureFixture):
    llm = MockProvider([])
    history: list[Message] = [_user(_GOAL), *_work(3), *_work(1, result="新" * 9000, start=9)]

    assert await _compactor(llm).compact(history, goal=_GOAL) is None
    assert llm.calls == []
    assert "too long by itself" in caplog.text


@pytest.mark.parametrize("history", [[], [_user(_GOAL)], [SystemMessage("S"), _user(_GOAL)], _history(1)])
async def test_a_short_conversation_stays_as_it_is(history: list[Message]):
    llm = MockProvider([])

    assert await _compactor(llm).compact(history, goal=_GOAL) is None
    assert llm.calls == []


async def test_a_vendor_that_calls_a_conversation_too_long_is_believed():
    history = _history(20)
    compactor = _compactor(window=128_000)
    assert compactor.due(compactor.measure(history)) == "nothing"

    compacted = await compactor.compact(history, goal=_GOAL)

    assert compacted is not None
    assert compacted.after < 0.7 * compacted.before


async def test_tokens_outside_the_messages_count():
    history, compactor = _history(20), _compactor(window=16_000)
    bare = compactor.measure(history).used
    with_tools = ContextUsage(bare + 5000, 12_000)

    compacted = await compactor.compact(history, goal=_GOAL, fill=with_tools)

    assert compacted is not None
    assert compacted.before == bare + 5000
    assert compacted.after > 5000
    assert abs(compacted.after - 5000 - _compactor().measure(compacted.history).used) < 10


async def test_what_a_rejected_summary_took_is_told():
    taken: list[Usage] = []

    assert await _compactor(MockProvider(["no"])).compact(_history(), goal=_GOAL, spent=taken.append) is None
    assert len(taken) == 1


async def test_a_summary_of_an_english_conversation_is_asked_for_in_english():
    english = "\n\n".join(f"## {section.title}\nDone." for section in SECTIONS)
    llm = MockProvider([english])
    history: list[Message] = [_user("Write a report"), *_work(40)]

    compacted = await _compacted(history, _compactor(llm), goal="Write a report")

    assert "in English" in llm.calls[0].messages[0].text
    assert "tokens became" in compacted.history[1].text


async def test_a_compaction_can_be_cancelled():
    compactor = _compactor(MockProvider([_SUMMARY, _SUMMARY], delay=60))
    history = _history()

    with anyio.move_on_after(0.05) as scope:
        await compactor.compact(history, goal=_GOAL)

    assert scope.cancelled_caught


async def test_a_request_that_cannot_be_sent_is_a_failure_like_any_other():
    def refuse(request: ChatRequest) -> str:
        raise InvalidInputError("The message cannot be sent.")

    assert await _compactor(MockProvider(refuse)).compact(_history(), goal=_GOAL) is None


@pytest.mark.parametrize(
    "wrong",
    [
        {"window": 0}, {"window": 8000, "reserve": -1}, {"window": 8000, "seconds": 0},
        {"window": 8000, "warn_at": 0.95},
        {"window": 8000, "apply_at": 1.2}, {"window": 8000, "target": 0.9}, {"window": 8000, "target": 0},
    ],
)  # fmt: skip
def test_numbers_that_make_no_sense_are_refused(wrong: dict[str, float]):
    with pytest.raises(ConfigError):
        Compactor(MockProvider([]), **wrong)  # pyright: ignore[reportArgumentType]
