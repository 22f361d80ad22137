"""A run goes on from wherever it was cut."""

from __future__ import annotations

import shutil
import sqlite3
from collections import Counter
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.compaction.summary import SECTIONS
from loom_core.agent.compaction_settings import Compaction
from loom_core.agent.recorder import RunState
from loom_core.errors import InvalidInputError, LLMError
from loom_core.llm.interface import ChatRequest, LLMResponse, StreamChunk
from loom_core.llm.messages import AssistantMessage, ToolCallPart, ToolMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.llm.transport.replay import pair_tool_results
from loom_core.runs.commands import ApprovalDecision, Reply
from loom_core.runs.journal import Journal
from loom_core.runs.memory import InMemoryMemory
from loom_core.runs.run import Budget, Pending
from loom_core.tools.function_tool import tool


class World:
    """A test's tools, with a count of their effects."""

    def __init__(self) -> None:
        self.effects: Counter[str] = Counter()

    def tools(self) -> list[Any]:
        @tool(read_only=True, open_world=False)
        async def 读取(文件: str) -> str:  # noqa: N802, N803 - Chinese
            """读取文件。"""
            self.effects[f"read {文件}"] += 1
            return f"{文件} 的内容"

        @tool(open_world=False)
        async def write(name: str) -> str:
            """Write a file."""
            self.effects[f"write {name}"] += 1
            return f"wrote {name}"

        return [读取, write]


def _script(request: ChatRequest) -> str | MockAnswer:
    """Three rounds of tools and an answer: a function of the conversation, as a model's answer is."""
    read = 读取_wire_name
    turn = sum(isinstance(message, AssistantMessage) for message in request.messages)
    results = [message.text for message in request.messages if isinstance(message, ToolMessage)]
    match turn:
        case 0:
            return MockAnswer(
                "我先看看。", reasoning="想一想", calls=(ToolCallPart("a", read, {"文件": "甲"}),)
            )
        case 1:
            calls = (
                ToolCallPart("b", read, {"文件": "乙"}),
                ToolCallPart("c", "write", {"name": "one"}),
                ToolCallPart("d", "nothing"),
                ToolCallPart("e", "write", {"name": "two"}),
            )
            return MockAnswer(calls=calls)
        case 2:
            return MockAnswer(calls=(ToolCallPart("f", "write", {"name": "three"}),))
        case _:
            return f"完成：{len(results)} 个结果，{results[-1]}"


读取_wire_name = World().tools()[0].wire_name


async def _yes(pending: Pending) -> bool:
    return True


def _agent(path: Path | None, world: World, **options: Any) -> Agent:
    given = {"approve": _yes, **options}
    return Agent(MockProvider(_script), tools=world.tools(), journal=Journal(path), compaction=None, **given)


async def _whole(path: Path) -> tuple[str, str, int]:
    """Drive the run to its end; its id, its output and how many events it has."""
    async with _agent(path, World()) as agent:
        result = await agent.run("整理文件")
        (run,) = await agent.journal.runs()
    return result.run_id, result.output, run.last_seq


def _cut(path: Path, run_id: str, *, after: int) -> None:
    """Make the file as if the process had been killed when `after` events were in it."""
    with sqlite3.connect(path) as db:
        (key,) = db.execute("SELECT key FROM runs WHERE id = ?", (run_id,)).fetchone()
        db.execute("DELETE FROM events WHERE key > ?", ((key << 32) + after,))
        pending = "[]"
        for (state,) in db.execute(
            "SELECT state FROM events WHERE type = 'approval_required' AND key NOT IN (SELECT e.key"
            " FROM events e, events d WHERE d.type = 'approval_decided' AND json_extract(d.state, '$.id') ="
            " json_extract(e.state, '$.id'))"
        ).fetchall():
            pending = f"[{state}]"
        status = "working" if pending == "[]" else "input_required"
        db.execute(
            "UPDATE runs SET status = ?, driver = NULL, standing = json_set(standing, '$.pending', json(?),"
            " '$.output', '', '$.structured', NULL, '$.problem', '', '$.last_seq', ?)",
            (status, pending, after),
        )
    db.close()


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str, int]:
    """The file of a run that is at its end."""
    path = tmp_path_factory.mktemp("whole") / "runs.db"
    return path, *anyio.run(_whole, path)


@pytest.mark.slow
async def test_a_run_cut_after_any_event_ends_the_same_and_does_nothing_twice(
    finished: tuple[Path, str, str, int], tmp_path: Path
) -> None:
    path, run_id, output, last = finished
    for after in range(last):
        cut = tmp_path / f"{after}.db"
        shutil.copy(path, cut)
        _cut(cut, run_id, after=after)
        world = World()
        async with _agent(cut, world) as agent:
            before = {
                event.payload["call_id"]
                for event in await agent.journal.events(run_id)
                if event.type == "tool_result"
            }
            begun = {
                event.payload["call_id"]
                for event in await agent.journal.events(run_id)
                if event.type == "tool_start"
            }
            result = await agent.resume(run_id)
            events = await agent.journal.events(run_id)
            messages = await agent.parts.memory.messages(result.session_id)
        assert (result.status, result.output) == ("completed", output), f"cut after {after}"
        results = [event.payload["call_id"] for event in events if event.type == "tool_result"]
        assert sorted(results) == list("abcdef"), f"cut after {after}"
        started = Counter(event.payload["call_id"] for event in events if event.type == "tool_start")
        assert all(started[id_] <= 1 for id_ in before), (
            f"cut after {after}: a finished call is not made again"
        )
        assert max(world.effects.values(), default=0) <= 1
        assert all(started[id_] == 2 for id_ in begun - before), f"cut after {after}: it is made again"
        assert pair_tool_results(messages) == tuple(messages), f"cut after {after}"
        assert [event.seq for event in events] == list(range(1, len(events) + 1))


async def test_a_state_read_back_is_the_state_that_was_lived_through(
    finished: tuple[Path, str, str, int], tmp_path: Path
) -> None:
    path, run_id, output, _ = finished
    copy = tmp_path / "runs.db"
    shutil.copy(path, copy)
    journal = Journal(copy)
    log = await journal.claim(run_id)
    assert log is not None
    async with log:
        state = RunState.restore(log.steps)
    await journal.aclose()
    assert state.output == output
    assert state.turns == 4
    assert not state.open_calls
    assert not state.pending


_BEGINNING, _END = "从前有座山" * 50, "山里有座庙。"


class _Cut(MockProvider):
    """Reads two long texts, and writes an answer that is cut in its middle."""

    def __init__(self) -> None:
        super().__init__(self._answer)

    def _answer(self, request: ChatRequest) -> str | MockAnswer:
        if "请从中断处继续" in request.messages[-1].text:
            return _END
        read = {call.id for each in request.messages if isinstance(each, AssistantMessage)
                for call in each.tool_calls}  # fmt: skip
        if len(read) == 2:
            return _BEGINNING
        return MockAnswer(calls=(ToolCallPart(f"r{len(read)}", "read", {"number": len(read)}),))

    async def chat_stream(self, messages: Any, **options: Any) -> AsyncGenerator[StreamChunk]:
        async for chunk in super().chat_stream(messages, **options):
            if chunk.response is not None and chunk.response.content == _BEGINNING:
                response = LLMResponse(chunk.response.message, "length", chunk.response.usage)
                yield StreamChunk("done", response=response)
            else:
                yield chunk


def _storyteller(path: Path) -> Agent:
    @tool(read_only=True, open_world=False)
    async def read(number: int) -> str:
        """读一段。"""
        return f"第 {number} 段：" + "山高水长" * 120

    summary = "\n\n".join(f"## {section.title_zh}\n读过两段。" for section in SECTIONS)
    # Two texts fit, and the first part of the answer does not, on whatever weekday the instructions tell.
    compaction = Compaction(llm=MockProvider(lambda request: summary), window=1400)
    return Agent(_Cut(), tools=[read], journal=Journal(path), compaction=compaction)


async def test_an_answer_that_is_cut_is_whole_in_the_end_wherever_the_process_dies(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    async with _storyteller(path) as agent:
        result = await agent.run("讲个故事")
        types = [event.type for event in await agent.journal.events(result.run_id)]
    assert result.output == _BEGINNING + _END
    cut_at = len(types) - types[::-1].index("compression_applied")
    assert types[cut_at] == "model_start", "it was shortened between the two parts"
    for after in range(cut_at - 4, len(types)):
        copy = tmp_path / f"{after}.db"
        shutil.copy(path, copy)
        _cut(copy, result.run_id, after=after)
        async with _storyteller(copy) as agent:
            again = await agent.resume(result.run_id)
        assert (again.status, again.output) == ("completed", result.output), f"cut after {after}"


async def _died_in(path: Path, name: str) -> str:
    """A run whose process died while a call of `name` was running; its id."""
    begun = anyio.Event()

    @tool(open_world=False)
    async def write(name: str) -> str:
        """Write a file."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    llm = MockProvider([MockAnswer(calls=(ToolCallPart("a", "write", {"name": name}),))])
    agent = Agent(llm, tools=[write], journal=Journal(path), permissions="allow")
    async with agent, anyio.create_task_group() as group:
        group.start_soon(agent.run, "write")
        await begun.wait()
        group.cancel_scope.cancel()
    journal = Journal(path)
    (run,) = await journal.runs()
    assert run.status == "working"
    await journal.aclose()
    return run.id


@pytest.mark.parametrize(("action", "effects"), [("approve", 1), ("deny", 0)])
async def test_a_call_of_which_no_one_knows_is_made_again_only_if_a_person_says_so(
    tmp_path: Path, action: Any, effects: int
) -> None:
    run_id = await _died_in(tmp_path / "runs.db", "one")
    world = World()
    asked: list[Pending] = []

    async def approve(pending: Pending) -> ApprovalDecision:
        asked.append(pending)
        return ApprovalDecision(id=pending.id, action=action, by="anna")

    llm = MockProvider(["done"])
    async with Agent(
        llm, tools=world.tools(), journal=Journal(tmp_path / "runs.db"), permissions="allow", approve=approve
    ) as agent:
        result = await agent.resume(run_id)
    assert result.output == "done"
    assert [pending.kind for pending in asked] == ["unknown"]
    assert world.effects["write one"] == effects
    told = llm.calls[0].messages[-1].text
    assert ("not known" in told) == (action == "deny")


async def test_a_call_that_a_person_has_changed_is_made_again_as_they_changed_it(tmp_path: Path) -> None:
    path, begun = tmp_path / "runs.db", anyio.Event()

    @tool(open_world=False)
    async def write(name: str) -> str:
        """Write a file."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    async def change(pending: Pending) -> ApprovalDecision:
        return ApprovalDecision(id=pending.id, action="edit", arguments={"name": "polite"})

    llm = MockProvider([MockAnswer(calls=(ToolCallPart("a", "write", {"name": "rude"}),))])
    agent = Agent(llm, tools=[write], journal=Journal(path), approve=change)
    async with agent, anyio.create_task_group() as group:
        group.start_soon(agent.run, "write")
        await begun.wait()
        group.cancel_scope.cancel()

    world, asked = World(), list[Pending]()

    async def approve(pending: Pending) -> bool:
        asked.append(pending)
        return True

    async with Agent(
        MockProvider(["done"]), tools=world.tools(), journal=Journal(path), approve=approve
    ) as agent:
        (run,) = await agent.journal.runs()
        await agent.resume(run.id)
        events = await agent.journal.events(run.id)
    made = [event.payload["arguments"] for event in events if event.type == "tool_start"]
    assert made == [{"name": "polite"}] * 2, "both differ from what the model wanted"
    assert [(pending.kind, pending.arguments) for pending in asked] == [("unknown", {"name": "polite"})]
    assert world.effects == {"write polite": 1}


async def test_where_no_one_can_be_asked_the_model_is_told_that_no_one_knows(tmp_path: Path) -> None:
    run_id = await _died_in(tmp_path / "runs.db", "one")
    world, llm = World(), MockProvider(["done"])
    async with Agent(
        llm, tools=world.tools(), journal=Journal(tmp_path / "runs.db"), permissions="allow"
    ) as agent:
        await agent.resume(run_id)
        events = await agent.journal.events(run_id)
    assert not world.effects
    result = next(event for event in events if event.type == "tool_result")
    assert result.payload["status"] == "unknown"


async def test_what_people_decided_before_the_crash_holds(tmp_path: Path) -> None:
    path = tmp_path / "runs.db"
    asked: list[str] = []
    both_asked = anyio.Event()

    async def never_answer(pending: Pending) -> bool:
        asked.append(pending.id)
        if len(asked) == 2:
            both_asked.set()
        await anyio.sleep_forever()
        return False

    async with _agent(path, World(), approve=never_answer) as agent, anyio.create_task_group() as group:
        group.start_soon(agent.run, "整理文件")
        with anyio.fail_after(10):
            await both_asked.wait()
        group.cancel_scope.cancel()
    journal = Journal(path)
    (run,) = await journal.runs()
    assert [pending.id for pending in run.pending] == ["c", "e"]
    await journal.send_commands(run.id, ApprovalDecision(id="c", action="approve", by="anna"))
    await journal.send_commands(run.id, ApprovalDecision(id="e", action="deny", by="anna"))
    await journal.aclose()
    world = World()
    later: list[str] = []

    async def approve(pending: Pending) -> bool:
        later.append(pending.id)
        return True

    async with _agent(path, world, approve=approve) as agent:
        result = await agent.resume(run.id)
    assert result.status == "completed"
    assert (world.effects["write one"], world.effects["write two"]) == (1, 0)
    assert set(later) <= {"c", "e", "f"}
    assert "f" in later


async def test_a_failed_run_goes_on_when_it_is_resumed(tmp_path: Path) -> None:
    world = World()
    agent = Agent(
        MockProvider([MockAnswer(calls=(ToolCallPart("a", "write", {"name": "one"}),))]),
        tools=world.tools(), journal=Journal(tmp_path / "runs.db"), permissions="allow",
    )  # fmt: skip
    async with agent:
        failed = await agent.run("write")
        assert failed.status == "failed"
    async with Agent(
        MockProvider(["done"]),
        tools=world.tools(),
        journal=Journal(tmp_path / "runs.db"),
        permissions="allow",
    ) as agent:
        result = await agent.resume(failed.run_id)
        types = [event.type for event in await agent.journal.events(failed.run_id)]
    assert (result.status, result.output, result.problem) == ("completed", "done", "")
    assert world.effects["write one"] == 1
    assert types.count("error") == types.count("resumed") == types.count("agent_finish") == 1


async def test_a_resumed_run_has_its_budget_once_more(tmp_path: Path) -> None:
    world = World()
    async with _agent(tmp_path / "runs.db", world) as agent:
        first = await agent.run("整理文件", budget=Budget(iterations=2))
        assert first.status == "failed"
        assert first.output
        second = await agent.resume(first.run_id)
    assert second.status == "completed"
    assert second.spent.iterations > 3


async def test_a_completed_run_is_given_back_as_it_is(tmp_path: Path) -> None:
    async with _agent(tmp_path / "runs.db", World()) as agent:
        result = await agent.run("整理文件")
        assert await agent.resume(result.run_id) == result


async def test_a_session_goes_on_in_another_process(tmp_path: Path) -> None:
    memory = InMemoryMemory()
    path = tmp_path / "runs.db"
    async with Agent(MockProvider(["one"]), journal=Journal(path), memory=memory) as agent:
        first = await agent.run("第一个问题")
    llm = MockProvider(["two"])
    async with Agent(llm, journal=Journal(path), memory=memory) as agent:
        second = await agent.run("第二个问题", session_id=first.session_id)
    assert second.status == "completed"
    assert [message.text for message in llm.calls[0].messages[1:]] == ["第一个问题", "one", "第二个问题"]


async def test_what_was_said_to_a_run_that_no_one_drives_is_read_when_it_goes_on(tmp_path: Path) -> None:
    run_id = await _died_in(tmp_path / "runs.db", "one")
    llm = MockProvider(["done"])
    async with Agent(llm, tools=World().tools(), journal=Journal(tmp_path / "runs.db")) as agent:
        await agent.send_command(run_id, Reply(text="快一点"))
        await agent.resume(run_id)
    assert llm.calls[0].messages[-1].text == "快一点"


async def test_a_run_that_the_session_has_left_behind_is_not_resumed_and_nothing_is_forgotten() -> None:
    async with Agent(
        MockProvider([LLMError("no such key", failure="authentication"), "乙", "never"])
    ) as agent:
        failed = await agent.run("甲？")
        later = await agent.run("那么呢？", session_id=failed.session_id)
        before = await agent.parts.memory.messages(failed.session_id)
        with pytest.raises(InvalidInputError, match=later.run_id):
            await agent.resume(failed.run_id)
        assert await agent.parts.memory.messages(failed.session_id) == before
        assert before[-1].text == "乙"
