"""Memories: what a session begins with is what was put there, in every kind of memory."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_core import plugins
from loom_core.errors import InvalidInputError, StoreError
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
from loom_core.runs.journal import Journal
from loom_core.runs.memory import InMemoryMemory, Memory, SQLiteMemory
from loom_core.runs.run import RunRequest

CONVERSATION: list[Message] = [
    SystemMessage("背景：用户在写季度报告"),
    UserMessage((TextPart("查一下北京的天气 \ud83d"), ImagePart(b"\x89PNG"))),
    AssistantMessage(
        (
            ReasoningPart("想一想", came_in="thinking", opaque={"signature": "s"}),
            ToolCallPart("c1", "weather", {"城市": "北京"}),
        ),
        provider="anthropic",
        model="m",
    ),
    ToolMessage("c1", (TextPart("晴，25 度"),)),
    AssistantMessage((TextPart("It is sunny in Beijing."),)),
]


@pytest.fixture(params=["in_memory", "sqlite", "journal", "postgres"])
async def memory(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Memory]:
    is_shared = request.param == "postgres"
    journal = Journal(request.getfixturevalue("postgres_place") if is_shared else tmp_path / "runs.db")
    match request.param:
        case "in_memory":
            memory = plugins.create("memory", "in_memory")
        case "sqlite":
            memory = plugins.create("memory", "sqlite", str(tmp_path / "memory.db"))
        case _:
            memory = SQLiteMemory(journal=journal)
    yield memory
    await memory.aclose()
    await journal.aclose()


async def test_a_conversation_comes_back_as_it_was_put_there(memory: Memory):
    assert await memory.messages("ses_1") == []
    await memory.replace("ses_1", CONVERSATION[:2])
    await memory.replace("ses_1", CONVERSATION)
    await memory.replace("ses_1", CONVERSATION)
    assert await memory.messages("ses_1") == CONVERSATION
    assert await memory.messages("ses_1", limit=2) == CONVERSATION[-2:]
    assert await memory.messages("ses_1", limit=0) == []
    assert await memory.messages("ses_2") == []


async def test_a_conversation_that_was_shortened_replaces_the_long_one(memory: Memory):
    await memory.replace("ses_1", CONVERSATION)
    shortened = [SystemMessage("摘要"), *CONVERSATION[-1:]]
    await memory.replace("ses_1", shortened)
    assert await memory.messages("ses_1") == shortened
    await memory.replace("ses_1", [])
    assert await memory.messages("ses_1") == []


async def test_a_message_whose_metadata_alone_has_changed_is_replaced(memory: Memory):
    for rating in (1, 5):
        await memory.replace("ses_1", [UserMessage((TextPart("Hello"),), metadata={"rating": rating})])
    (message,) = await memory.messages("ses_1")
    assert message.metadata == {"rating": 5}


async def test_a_message_is_put_behind_the_others(memory: Memory):
    for message in CONVERSATION:
        await memory.add("ses_1", message)
    assert await memory.messages("ses_1") == CONVERSATION


async def test_sessions_are_listed_by_their_latest_message(memory: Memory):
    for session in ("ses_1", "ses_2", "ses_3"):
        await memory.replace(session, CONVERSATION[:2])
    await memory.replace("ses_3", CONVERSATION[:2])
    await memory.add("ses_1", CONVERSATION[2])
    listed = await memory.sessions()
    assert [(each.id, each.messages) for each in listed] == [("ses_1", 3), ("ses_3", 2), ("ses_2", 2)]
    assert listed[0].updated >= listed[1].updated > 0


async def test_a_session_that_was_cleared_has_gone(memory: Memory):
    await memory.replace("ses_1", CONVERSATION)
    await memory.search("天气")
    await memory.clear("ses_1")
    await memory.clear("ses_1")
    assert await memory.messages("ses_1") == []
    assert await memory.sessions() == []
    assert await memory.search("天气") == []


async def test_messages_are_found_by_words_in_english_and_chinese(memory: Memory):
    await memory.replace("ses_1", CONVERSATION)
    await memory.add("ses_2", UserMessage((TextPart("Is it sunny in Xi'an? 天气如何"),)))
    (hit,) = await memory.search("季度报告", limit=1)
    assert (hit.session_id, hit.position, hit.message) == ("ses_1", 0, CONVERSATION[0])
    assert {(each.session_id, each.position) for each in await memory.search("sunny")} == {
        ("ses_1", 4),
        ("ses_2", 0),
    }
    assert [each.session_id for each in await memory.search("天气", session_id="ses_2")] == ["ses_2"]
    assert [each.position for each in await memory.search("晴")] == [3]
    assert await memory.search("火星") == []
    await memory.replace("ses_1", CONVERSATION[1:])
    assert await memory.search("季度报告") == []


async def test_what_one_memory_saves_another_loads(memory: Memory, tmp_path: Path):
    await memory.replace("ses_1", CONVERSATION)
    await memory.replace("会话", CONVERSATION[:1])
    path = tmp_path / "memory.jsonl"
    await memory.save(str(path))
    assert "北京" in path.read_text(encoding="utf-8")
    for other in (InMemoryMemory(), SQLiteMemory(tmp_path / "other.db")):
        await other.add("ses_1", CONVERSATION[0])
        await other.add("ses_9", CONVERSATION[0])
        await other.load(str(path))
        assert await other.messages("ses_1") == CONVERSATION
        assert await other.messages("会话") == CONVERSATION[:1]
        assert [each.id for each in await other.sessions()] == ["会话", "ses_1", "ses_9"]
        await other.aclose()


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("{", "Expecting"),
        ("[]", "not an object"),
        ('{"message": {}}', "'session' is missing"),
        ('{"session": 1}', "its session is not a string"),
        ('{"session": "s", "message": {"role": "owner"}}', "its role is 'owner'"),
        ('{"session": "s", "message": ' + "[" * 100_000, "recursion"),
        (b"\xff\xfe\xfa", "decode"),
    ],
)
async def test_a_file_with_a_wrong_line_is_refused_and_nothing_taken_over(
    tmp_path: Path, line: str | bytes, reason: str
):
    path, memory = tmp_path / "memory.jsonl", InMemoryMemory()
    await memory.replace("ses_1", CONVERSATION)
    await memory.save(path)
    with path.open("ab") as file:
        file.write(b"\n" + (line.encode() if isinstance(line, str) else line))
    other = InMemoryMemory()
    with pytest.raises(InvalidInputError, match=rf"memory.jsonl:7: .*{reason}"):
        await other.load(path)
    assert await other.sessions() == []


async def test_a_file_that_cannot_be_read_or_written_is_told_with_advice(tmp_path: Path):
    memory = InMemoryMemory()
    for call in (memory.load, memory.save):
        with pytest.raises(StoreError) as caught:
            await call(tmp_path / "none" / "memory.jsonl")
        assert caught.value.advice


async def test_a_memory_in_a_file_is_there_when_it_is_opened_again_and_may_share_a_journals_file(
    tmp_path: Path,
):
    journal, memory = Journal(tmp_path / "runs.db"), SQLiteMemory(tmp_path / "runs.db")
    run = await journal.create(RunRequest(goal="g"))
    await memory.replace(run.request.session_id, CONVERSATION)
    await memory.aclose()
    again = SQLiteMemory(journal=journal)
    assert await again.messages(run.request.session_id) == CONVERSATION
    await again.aclose()
    assert [each.id for each in await journal.runs()] == [run.id]
    await journal.aclose()


async def test_a_session_that_is_no_text_is_refused(tmp_path: Path):
    memory = SQLiteMemory(tmp_path / "memory.db")
    with pytest.raises(InvalidInputError):
        await memory.add("\ud800", CONVERSATION[0])
    await memory.aclose()


MESSAGES = st.sampled_from(CONVERSATION)


@pytest.mark.slow
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(st.lists(st.tuples(st.sampled_from("ab"), st.lists(MESSAGES, max_size=4) | MESSAGES), max_size=8))
async def test_both_kinds_of_memory_remember_the_same(
    tmp_path: Path, steps: list[tuple[str, list[Message] | Message]]
):
    one, other = InMemoryMemory(), SQLiteMemory(tmp_path / "memory.db")
    for session in "ab":
        await other.clear(session)
    for memory in (one, other):
        for session, step in steps:
            if isinstance(step, list):
                await memory.replace(session, step)
            else:
                await memory.add(session, step)
    for session in "ab":
        assert await one.messages(session) == await other.messages(session)
    listed = [[(each.id, each.messages) for each in await memory.sessions()] for memory in (one, other)]
    assert [each for each in listed[0] if each[1]] == [each for each in listed[1] if each[1]]
    found = [
        {(hit.session_id, hit.position) for hit in await memory.search("天气 sunny", limit=50)}
        for memory in (one, other)
    ]
    assert found[0] == found[1]
    await other.aclose()
