"""A fork begins with the steps of another run, and goes on by itself."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from loom_core.agent import (
    Agent,
    AgentTool,
    ApprovalDecision,
    Budget,
    Compaction,
    InMemoryMemory,
    Journal,
    Pending,
    RunResult,
)
from loom_core.agent.compaction.summary import SECTIONS
from loom_core.agent.steps import read_steps
from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import AssistantMessage, ToolCallPart, ToolMessage
from loom_core.llm.mock import MockAnswer
from loom_core.runs.run import FORK_OF, FORK_STEP, PARENT_RUN
from loom_core.testing import MockLLM, call
from loom_core.tools import tool


def _script(request: ChatRequest) -> MockAnswer:
    """Two rounds of calls, the first one of two in parallel, and an answer with the results."""
    results = [message.text for message in request.messages if isinstance(message, ToolMessage)]
    said = "".join(each.text for each in request.messages[-1:] if each.role == "user")
    match sum(isinstance(message, AssistantMessage) for message in request.messages):
        case 0:
            calls = (ToolCallPart("a", "send", {"to": "李"}), ToolCallPart("b", "send", {"to": "王"}))
            return MockAnswer("先发两封。", calls=calls)
        case 1:
            return MockAnswer(calls=(ToolCallPart("c", "send", {"to": "赵"}),))
        case _:
            return MockAnswer("；".join([*results, said]).strip("；"))


class _Office:
    """Agents of one journal whose tool sends letters: `sent` counts them, `asked` the approvals."""

    def __init__(self) -> None:
        self.journal = Journal()
        self.memory = InMemoryMemory()
        self.sent: Counter[str] = Counter()
        self.asked: list[str] = []

    def agent(self, name: str = "clerk", **options: Any) -> Agent:
        @tool(open_world=False)
        async def send(to: str) -> str:
            """Send a letter."""
            self.sent[to] += 1
            return f"{to}收到"

        async def approve(pending: Pending) -> ApprovalDecision:
            self.asked.append(pending.id)
            return ApprovalDecision(id=pending.id, action="approve", scope="run")

        given: dict[str, Any] = {"tools": [send], "approve": approve, "llm": MockLLM(_script), **options}
        return Agent(name=name, journal=self.journal, memory=self.memory, **given)

    async def original(self) -> RunResult[dict[str, Any]]:
        result = (await self.agent().run("寄信", budget=Budget(iterations=3))).or_raise()
        self.sent.clear()
        self.asked.clear()
        return result


@pytest.mark.parametrize(
    ("step", "sent", "turns"),
    [(1, "李王赵", 3), (2, "李王赵", 2), (3, "王赵", 2), (4, "赵", 2), (5, "赵", 1), (6, "", 1)],
)
async def test_a_fork_does_the_steps_from_its_point_on_and_none_before(
    step: int, sent: str, turns: int
) -> None:
    office = _Office()
    first = await office.original()
    before = await office.journal.events(first.run_id)
    fork = await office.agent().fork(first.run_id, at=step)
    assert (fork.status, fork.output) == ("completed", "李收到；王收到；赵收到")
    assert office.sent == Counter(sent)
    assert bool(office.asked) == bool(sent), "an approval for the rest of a run is not one for its fork"
    assert (fork.spent.iterations, fork.spent.tool_calls) == (turns, len(sent)), "what it has done itself"
    assert await office.journal.events(first.run_id) == before
    assert fork.session_id != first.session_id
    assert await office.memory.messages(fork.session_id) == await office.memory.messages(first.session_id)
    events = await office.journal.events(fork.run_id)
    assert [event.seq for event in events] == list(range(1, len(events) + 1))
    steps = read_steps(events)
    assert [each.is_inherited for each in steps] == [True] * (step - 1) + [False] * (7 - step)
    request = (await office.journal.get(fork.run_id)).request
    assert (request.metadata[FORK_OF], request.metadata[FORK_STEP]) == (first.run_id, step)
    assert [run.id for run in await office.journal.search(first.run_id)] == [fork.run_id]


async def test_what_a_step_comes_to_can_be_given_and_another_agent_can_go_on() -> None:
    office = _Office()
    first = await office.original()
    other = office.agent("other")
    result = await other.fork(first.run_id, at=3, outcome="王搬走了", message="请简短。")
    assert result.output == "李收到；王搬走了；赵收到"
    assert office.sent == Counter("赵")
    answered = await other.fork(result.run_id, at=6, outcome="好了。", message="真的？")
    assert answered.output == "李收到；王搬走了；赵收到；真的？"
    assert [
        each.text for each in read_steps(await office.journal.events(answered.run_id)) if each.is_given
    ] == ["好了。"]
    called = await other.fork(first.run_id, at=4, outcome=[ToolCallPart("", "send", {"to": "钱"})])
    assert called.output == "李收到；王收到；钱收到"
    assert (await office.journal.get(called.run_id)).request.profile == "other"
    kept = await other.fork(first.run_id, at=6, outcome="完", same_session=True)
    assert kept.session_id == first.session_id
    assert (await office.memory.messages(first.session_id))[-1].text == "完"


async def test_an_exhausted_budget_does_not_end_the_fork_of_a_run_that_it_has_ended() -> None:
    journal = Journal()
    agent = Agent(MockLLM([call("x"), "比如三天。"]), journal=journal, budget=Budget(iterations=1))
    first = await agent.run("多少天？")
    assert first.status == "failed"
    given = await agent.fork(first.run_id, at=3, outcome="四天。")
    assert (given.status, given.output) == ("completed", "四天。")
    again = await agent.extend(journal=journal).fork(first.run_id, at=1, outcome="五天。")
    assert (again.status, again.output) == ("completed", "五天。")


async def test_what_cannot_be_forked_is_refused() -> None:
    office = _Office()
    first = await office.original()
    with pytest.raises(InvalidInputError, match=r"no step 7.*steps 1 to 6"):
        await office.agent().fork(first.run_id, at=7)
    with pytest.raises(InvalidInputError, match="Step 2 is a call"):
        await office.agent().fork(first.run_id, at=2, outcome=[ToolCallPart("", "send", {"to": "钱"})])
    with pytest.raises(NotFoundError, match="no tool 'sent'"):
        await office.agent().fork(first.run_id, at=1, outcome=[ToolCallPart("", "sent")])
    assert len(await office.journal.runs()) == 1


async def test_before_a_compaction_the_conversation_is_that_of_then() -> None:
    summary = "\n\n".join(f"## {section.title_zh}\n读过两段。" for section in SECTIONS)

    @tool(read_only=True, open_world=False)
    async def read(number: int) -> str:
        """读一段。"""
        return f"第 {number} 段：" + "山高水长" * 120

    def agent(llm: MockLLM, window: int) -> Agent:
        compaction = Compaction(llm=MockLLM(lambda request: summary), window=window)
        return Agent(llm, tools=[read], journal=journal, compaction=compaction)

    journal = Journal()
    llm = MockLLM([call("read", number=1), call("read", number=2), call("read", number=3), "完"])
    first = await agent(llm, 1560).run("讲个故事")
    types = [event.type for event in await journal.events(first.run_id)]
    assert "compression_applied" in types[: types.index("usage", types.index("usage") + 1) + 20]
    late, early = MockLLM(["晚"]), MockLLM(["早"])
    await agent(late, 9000).fork(first.run_id, at=7)
    await agent(early, 9000).fork(first.run_id, at=3)
    assert late.calls[0].messages[1:] == llm.calls[3].messages[1:], "as it was shortened"
    assert early.tool_results == ["第 1 段：" + "山高水长" * 120]


async def test_a_fork_of_a_child_run_belongs_to_no_parent() -> None:
    journal = Journal()
    child = Agent(MockLLM(["二十八", "二十九"]), name="people", description="Knows about leave.")
    boss = Agent(MockLLM([call("people", goal="多少天？"), "好"]), tools=[AgentTool(child)], journal=journal)
    await boss.run("问一问")
    (run,) = [each for each in await journal.runs() if PARENT_RUN in each.request.metadata]
    fork = await child.extend(journal=journal).fork(run.id, at=1)
    assert (fork.status, fork.output) == ("completed", "二十九")
    assert PARENT_RUN not in (await journal.get(fork.run_id)).request.metadata
