"""Agents with a memory: what a run learns, what the next one reads, and what the tools may do."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from loom_core.agent import Agent, NewNote, Note, UserMemory
from loom_core.embedding.interface import EmbeddingKind, ForwardingEmbedder
from loom_core.embedding.local_models.hashing import HashingEmbedder
from loom_core.errors import ConfigError, EmbeddingError
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.testing import MockLLM, call
from loom_core.tools import PermissionRule, Permissions


@pytest.fixture
def memory(tmp_path: Path) -> UserMemory:
    return UserMemory(tmp_path / "memory", embedder=HashingEmbedder())


def _texts(notes: list[Note]) -> set[str]:
    return {each.text for each in notes}


async def test_the_next_session_of_the_user_and_only_of_this_user_reads_the_notes(memory: UserMemory) -> None:
    llm = MockProvider(["Hello", "Hello again", "Hello", "Hello"])
    async with Agent(llm, user_memory=memory) as agent:
        first = await agent.run("My name is Ada. I'm allergic to nuts.", caller="ada")
        second = await agent.run("Suggest a snack.", caller="ada")
        await agent.run("And another one.", caller="ada", session_id=second.session_id)
        await agent.run("Suggest a snack.", caller="bob")
        told = [
            each.payload for each in await agent.journal.events(second.run_id) if each.type == "knowledge"
        ]
    system, notes, goal = llm.calls[1].messages
    assert "My name is Ada" in notes.text
    assert "I'm allergic to nuts" in notes.text
    assert "data that may be out of date" in notes.text
    assert goal.text == "Suggest a snack."
    assert "`recall`" in system.text
    assert {each["source"] for each in told[0]["passages"]} == {"user memory"}
    assert sum("allergic" in each.text for each in llm.calls[2].messages) == 1, "not repeated"
    assert not any("allergic" in each.text for each in llm.calls[3].messages)
    [one, other] = await memory.notes("ada")
    assert {one.run_id, other.run_id} == {first.run_id}


async def test_without_a_known_user_nothing_is_remembered(memory: UserMemory) -> None:
    llm = MockLLM([[call("remember", text="The user likes tea.")], "Done", "Hello"])
    async with Agent(llm, user_memory=memory) as agent:
        result = await agent.run("I live in Leeds. Remember that I like tea.")
        events = await agent.journal.events(result.run_id)
    assert await memory.users() == []
    [failed] = [each.payload for each in events if each.type == "tool_result"]
    assert "not known who the user is" in failed["text"]
    assert "`recall`" not in llm.calls[0].messages[0].text


async def test_a_program_with_one_user_says_so(tmp_path: Path) -> None:
    memory = UserMemory(tmp_path, embedder=HashingEmbedder(), default_user="me")
    async with Agent(MockLLM(["Hello"]), user_memory=memory) as agent:
        await agent.run("我住在杭州。")
    assert _texts(await memory.notes("me")) == {"我住在杭州"}


async def _call_tools(memory: UserMemory, *calls: Any, **options: Any) -> list[Mapping[str, Any]]:
    llm = MockLLM([[call(name, **arguments)] for name, arguments in calls] + ["Done"])
    async with Agent(llm, user_memory=memory, **options) as agent:
        result = await agent.run("Go", caller="ada")
        return [
            each.payload for each in await agent.journal.events(result.run_id) if each.type == "tool_result"
        ]


async def test_what_the_agent_notes_itself_is_not_noted_again(memory: UserMemory) -> None:
    llm = MockLLM([[call("remember", text="The user is allergic to nuts.")], "Noted."])
    async with Agent(llm, user_memory=memory) as agent:
        await agent.run("I'm allergic to nuts.", caller="ada")
    assert _texts(await memory.notes("ada")) == {"The user is allergic to nuts."}


async def test_remembering_needs_no_approval_and_forgetting_does(memory: UserMemory) -> None:
    [noted] = await _call_tools(memory, ("remember", {"text": "The user likes tea."}))
    [note] = await memory.notes("ada")
    assert note.id in noted["text"]
    assert note.source == "agent"
    forget = ("forget", {"ids": [note.id, "m0"]})
    recalled, refused = await _call_tools(memory, ("recall", {"query": "tea"}), forget)
    assert "The user likes tea." in recalled["text"]
    assert refused["status"] != "success"
    assert await memory.notes("ada") == [note]

    async def approve(_: object) -> bool:
        return True

    [deleted] = await _call_tools(memory, forget, approve=approve)
    assert "There are no notes m0." in deleted["text"]
    assert await memory.notes("ada") == []


@pytest.mark.parametrize("action", ["ask", "deny"])
@pytest.mark.parametrize("args", [{}, {"text": "*tea*"}])
async def test_a_rule_about_remember_is_obeyed(memory: UserMemory, action: Any, args: dict[str, str]) -> None:
    rules = Permissions([PermissionRule(action=action, tool="remember", args=args)])
    [refused] = await _call_tools(memory, ("remember", {"text": "The user likes tea."}), permissions=rules)
    assert refused["status"] != "success"
    assert await memory.users() == []


def _found(*notes: dict[str, str]) -> MockAnswer:
    return MockAnswer(json.dumps({"notes": list(notes)}))


async def test_a_model_extracts_once_from_the_words_of_the_user_alone(tmp_path: Path) -> None:
    [old] = await UserMemory(tmp_path, embedder=HashingEmbedder()).add(
        "ada", [NewNote(text="Lives in Leeds")]
    )
    small = MockProvider(
        [
            _found(
                {"text": "Lives in Rome", "kind": "fact", "replaces": old.id},
                {"text": "The password is hunter2", "kind": "fact", "replaces": ""},
                {"text": "Likes tea", "kind": "preference", "replaces": "m0"},
            )
        ]
    )
    memory = UserMemory(tmp_path, embedder=HashingEmbedder(), extraction="model", llm=small)
    async with Agent(MockProvider(["The answer of the agent"]), user_memory=memory) as agent:
        result = await agent.run("We moved from Leeds to Rome, for the tea.", caller="ada")
        run = await agent.journal.get(result.run_id)
        assert await memory.learn(run, [run.request.goal], small) is None, "nothing is extracted again"
    assert result.spent.usage.input_tokens > 300, "the extraction counts"
    assert result.spent.iterations == 1
    asked = small.calls[0].messages[-1].text
    assert old.id in asked
    assert "answer of the agent" not in asked
    assert _texts(await memory.notes("ada")) == {"Lives in Rome", "Likes tea"}


@pytest.mark.parametrize("answer", ["No JSON", _found({"text": "x" * 600, "kind": "fact", "replaces": ""})])
async def test_an_extraction_that_fails_fails_no_run(tmp_path: Path, answer: Any) -> None:
    memory = UserMemory(tmp_path, embedder=HashingEmbedder(), extraction="model")
    async with Agent(MockProvider(["Hello", answer]), user_memory=memory) as agent:
        assert (await agent.run("Hello", caller="ada")).or_raise().output == "Hello"
    assert await memory.notes("ada") == []


class _Away(ForwardingEmbedder):
    """An embedder of a service that is away, with which the notes were not stored."""

    @property
    def id(self) -> str:
        return "away"

    async def embed(self, texts: Sequence[str], *, kind: EmbeddingKind = "passage") -> NDArray[np.float32]:
        raise EmbeddingError("The service is away.")


async def test_what_always_holds_is_read_also_if_the_notes_cannot_be_searched(tmp_path: Path) -> None:
    memory = UserMemory(tmp_path, embedder=HashingEmbedder())
    allergy = NewNote(text="I'm allergic to nuts", kind="constraint")
    await memory.add("ada", [allergy, *(NewNote(text=f"I like the number {n}") for n in range(8))])
    llm = MockLLM(["Hello"])
    async with Agent(llm, user_memory=UserMemory(tmp_path, embedder=_Away(HashingEmbedder()))) as agent:
        await agent.run("Suggest a snack.", caller="ada")
    assert "allergic" in llm.calls[0].messages[1].text


async def test_a_folder_that_cannot_be_made_fails_no_run(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    memory = UserMemory(tmp_path / "file" / "memory", embedder=HashingEmbedder())
    async with Agent(MockLLM(["Hello"]), user_memory=memory) as agent:
        assert (await agent.run("My name is Ada.", caller="ada")).output == "Hello"


async def test_the_two_kinds_of_memory_are_not_confused(memory: UserMemory) -> None:
    with pytest.raises(ConfigError, match="`memory` cannot be") as wrong:
        Agent(MockLLM([]), memory=memory)  # type: ignore[arg-type] - a mistake of the caller
    assert "`user_memory`" in wrong.value.advice
    with pytest.raises(ConfigError, match="`user_memory` cannot be"):
        Agent(MockLLM([]), user_memory={})  # type: ignore[arg-type] - a mistake of the caller
