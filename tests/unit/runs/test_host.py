from __future__ import annotations

import asyncio
from pathlib import Path

import anyio
import pytest

from loom_core.agent.agent import Agent
from loom_core.errors import ConfigError, NotFoundError
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import ToolCallPart
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.commands import Abort, ApprovalDecision, Pause, Resume
from loom_core.runs.host import RunHost
from loom_core.runs.journal import Journal
from loom_core.runs.run import Run, RunRequest
from loom_core.tools.function_tool import tool


@tool(read_only=True, open_world=False)
async def echo(text: str) -> str:
    """Say it again."""
    return text


@tool
async def send(text: str) -> str:
    """Send it."""
    return f"sent {text}"


def _echo(request: ChatRequest) -> str | MockAnswer:
    if request.messages[-1].role == "tool":
        return request.messages[-1].text
    return MockAnswer(calls=(ToolCallPart("c", "echo", {"text": request.messages[-1].text}),))


async def _ended(journal: Journal, run: Run) -> Run:
    with anyio.fail_after(10):
        while run.status not in {"completed", "failed", "aborted"}:
            run = await journal.wait_until_idle(run.id, after=run.last_seq, seconds=10)
    return run


async def test_a_run_goes_on_in_the_background() -> None:
    journal = Journal()
    agent = Agent(MockProvider(_echo), tools=[echo], journal=journal)
    async with agent, RunHost(journal, {"default": agent}) as host:
        run = await host.start(RunRequest(goal="你好"))
        assert run.status == "working"
        run = await _ended(journal, run)
        assert (run.status, run.output) == ("completed", "你好")
        with anyio.fail_after(30):
            while host.driven:
                await anyio.lowlevel.checkpoint()


@pytest.mark.slow
async def test_hundreds_of_runs_are_driven_at_once() -> None:
    journal = Journal()
    agent = Agent(MockProvider(_echo), tools=[echo], journal=journal, compaction=None)
    async with agent, RunHost(journal, {"default": agent}) as host:
        runs = [await host.start(RunRequest(goal=str(number))) for number in range(200)]
        outputs = [(await _ended(journal, run)).output for run in runs]
    assert outputs == [str(number) for number in range(200)]


async def test_no_more_runs_than_allowed_are_driven_at_once() -> None:
    most, now = 0, 0

    @tool(read_only=True, open_world=False)
    async def count() -> str:
        """Count."""
        nonlocal most, now
        now += 1
        most = max(most, now)
        await anyio.lowlevel.checkpoint()
        now -= 1
        return "counted"

    def script(request: ChatRequest) -> str | MockAnswer:
        return (
            "done" if request.messages[-1].role == "tool" else MockAnswer(calls=(ToolCallPart("c", "count"),))
        )

    journal = Journal()
    agent = Agent(MockProvider(script), tools=[count], journal=journal)
    async with agent, RunHost(journal, {"default": agent}, max_runs=2) as host:
        runs = [await host.start(RunRequest(goal="count")) for _ in range(8)]
        for run in runs:
            assert (await _ended(journal, run)).output == "done"
    assert most <= 2


async def test_what_a_host_leaves_is_taken_up_by_the_next(tmp_path: Path) -> None:
    begun = anyio.Event()

    @tool(read_only=True, open_world=False, name="echo")
    async def hang(text: str) -> str:
        """Hang."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    path = tmp_path / "runs.db"
    journal = Journal(path)
    agent = Agent(MockProvider(_echo), tools=[hang], journal=journal)
    async with agent, RunHost(journal, {"default": agent}) as host:
        run = await host.start(RunRequest(goal="接着做"))
        await begun.wait()
    journal = Journal(path)
    left = await journal.get(run.id)
    assert (left.status, left.driver) == ("working", "")
    agent = Agent(MockProvider(_echo), tools=[echo], journal=journal)
    async with agent, RunHost(journal, {"default": agent}):
        assert (await _ended(journal, left)).output == "接着做"


async def test_a_call_that_must_not_be_made_twice_may_end_when_the_host_does(tmp_path: Path) -> None:
    begun, go_on, sent = anyio.Event(), anyio.Event(), list[str]()

    @tool(open_world=False, name="echo")
    async def echo_slowly(text: str) -> str:
        """Send it."""
        begun.set()
        await go_on.wait()
        sent.append(text)
        return "sent"

    path = tmp_path / "runs.db"
    journal = Journal(path)
    llm = MockProvider(
        lambda request: MockAnswer(
            calls=tuple(ToolCallPart(f"c{n}", "echo", {"text": str(n)}) for n in range(2))
        )
    )
    agent = Agent(llm, tools=[echo_slowly], journal=journal, permissions="allow")
    async with agent, RunHost(journal, {"default": agent}, grace_seconds=10) as host:
        run = await host.start(RunRequest(goal="寄出"))
        await begun.wait()
        asyncio.get_running_loop().call_later(0.05, go_on.set)
    journal = Journal(path)
    left, events = await journal.get(run.id), await journal.events(run.id)
    await journal.aclose()
    assert (left.status, left.driver) == ("working", "")
    assert sent == ["0"], "nothing else was begun"
    told = [(event.type, event.payload["call_id"]) for event in events if event.type.startswith("tool_")
            and "call_id" in event.payload]  # fmt: skip
    assert told == [("tool_start", "c0"), ("tool_result", "c0")]


async def test_a_call_that_does_not_end_does_not_keep_the_host(tmp_path: Path) -> None:
    begun = anyio.Event()

    @tool(open_world=False, name="echo")
    async def hang(text: str) -> str:
        """Hang."""
        begun.set()
        await anyio.sleep_forever()
        return ""

    journal = Journal(tmp_path / "runs.db")
    agent = Agent(MockProvider(_echo), tools=[hang], journal=journal, permissions="allow")
    with anyio.fail_after(10):
        async with agent, RunHost(journal, {"default": agent}, grace_seconds=0.05) as host:
            run = await host.start(RunRequest(goal="go"))
            await begun.wait()
    journal = Journal(tmp_path / "runs.db")
    assert [event.type for event in await journal.events(run.id)][-1] == "tool_start"
    await journal.aclose()


async def test_a_run_that_waits_goes_on_when_its_order_is_given_to_the_next_host(tmp_path: Path) -> None:
    def script(request: ChatRequest) -> str | MockAnswer:
        if request.messages[-1].role == "tool":
            return request.messages[-1].text
        return MockAnswer(calls=(ToolCallPart("c", "send", {"text": "hi"}),))

    def made(journal: Journal) -> Agent:
        return Agent(MockProvider(script), tools=[send], journal=journal, wait_for_commands=True)

    path = tmp_path / "runs.db"
    journal = Journal(path)
    agent = made(journal)
    async with agent, RunHost(journal, {"default": agent}) as host:
        run = await host.start(RunRequest(goal="send"))
        run = await journal.wait_until_idle(run.id, after=run.last_seq, seconds=10)
        assert run.status == "input_required"
    journal = Journal(path)
    agent = made(journal)
    async with agent, RunHost(journal, {"default": agent}) as host:
        assert not host.driven, "a run that only waits needs no executor"
        await host.send_commands(run.id, ApprovalDecision(id=run.pending[0].id, action="approve"))
        assert (await _ended(journal, run)).output == "sent hi"


async def test_paused_and_aborted_runs_can_be_resumed_by_the_host() -> None:
    gate = anyio.Event()

    @tool(read_only=True, open_world=False, name="echo")
    async def wait(text: str) -> str:
        """Wait."""
        await gate.wait()
        return text

    journal = Journal()
    agent = Agent(MockProvider(_echo), tools=[wait], journal=journal)
    async with agent, RunHost(journal, {"default": agent}) as host:
        run = await host.start(RunRequest(goal="go"))
        await host.send_commands(run.id, Pause())
        run = await journal.wait_until_idle(run.id, after=run.last_seq, seconds=10)
        assert run.status == "paused"
        await host.send_commands(run.id, Abort(reason="enough"))
        run = await _ended(journal, run)
        assert run.status == "aborted"
        gate.set()
        run = await host.send_commands(run.id, Resume())
        with anyio.fail_after(10):
            while (run := await journal.get(run.id)).status != "completed":
                await anyio.lowlevel.checkpoint()


async def test_agents_are_made_when_they_are_first_wanted() -> None:
    made: list[str] = []
    journal = Journal()

    async def make(profile: str) -> Agent:
        if profile != "翻译":
            raise NotFoundError(f"There is no profile {profile!r}.")
        made.append(profile)
        return Agent(MockProvider(["好"] * 2), journal=journal, name=profile)

    async with RunHost(journal, make) as host:
        runs = [await host.start(RunRequest(goal="go", profile="翻译")) for _ in range(2)]
        for run in runs:
            assert (await _ended(journal, run)).output == "好"
        with pytest.raises(NotFoundError, match="nothing"):
            await host.start(RunRequest(goal="go", profile="nothing"))
    assert made == ["翻译"]
    await journal.aclose()


async def test_a_run_of_a_strange_profile_is_left_to_others(caplog: pytest.LogCaptureFixture) -> None:
    journal = Journal()
    run = await journal.create(RunRequest(goal="go", profile="elsewhere"))
    async with RunHost(journal, {}, look_seconds=0.01):
        with anyio.fail_after(10):
            while "left to others" not in caplog.text:
                await anyio.lowlevel.checkpoint()
    assert (await journal.get(run.id)).status == "working"
    await journal.aclose()


async def test_why_a_run_does_not_go_on_is_known_and_said_once(caplog: pytest.LogCaptureFixture) -> None:
    tried = 0

    async def make(_profile: str) -> Agent:
        nonlocal tried
        tried += 1
        raise ConfigError("There is no key.", advice="Set one.")

    journal = Journal()
    run = await journal.create(RunRequest(goal="go"))
    async with RunHost(journal, make, look_seconds=0.01) as host:
        with anyio.fail_after(10):
            while tried < 3:
                await anyio.lowlevel.checkpoint()
        assert host.held == {run.id: "There is no key. Set one."}
    assert caplog.text.count("There is no key") == 1
    assert (await journal.get(run.id)).status == "working"
    await journal.aclose()


async def test_a_run_that_fails_unexpectedly_does_not_end_the_host(caplog: pytest.LogCaptureFixture) -> None:
    def broken(request: ChatRequest) -> str:
        if request.messages[-1].text == "break":
            raise ZeroDivisionError("oops")
        return "fine"

    journal = Journal()
    agent = Agent(MockProvider(broken), journal=journal)
    async with agent, RunHost(journal, {"default": agent}) as host:
        first = await _ended(journal, await host.start(RunRequest(goal="break")))
        second = await _ended(journal, await host.start(RunRequest(goal="work")))
    assert (first.status, second.output) == ("failed", "fine")
    assert "ZeroDivisionError" in caplog.text


async def test_outside_of_its_block_a_host_drives_nothing() -> None:
    journal = Journal()
    agent = Agent(MockProvider([]), journal=journal)
    host = RunHost(journal, {"default": agent})
    with pytest.raises(RuntimeError, match="async with"):
        await host.start(RunRequest(goal="go"))
    await agent.aclose()


async def test_a_host_that_does_not_look_drives_what_it_is_told_to_and_nothing_else(tmp_path: Path) -> None:
    journal = Journal(tmp_path / "runs.db")
    agent = Agent(MockProvider(_echo), tools=[echo], journal=journal)
    left, wanted = [await journal.create(RunRequest(goal=goal)) for goal in ("甲", "乙")]
    async with agent, RunHost(journal, {"default": agent}, look_seconds=None) as host:
        await host.adopt(wanted.id)
        assert (await _ended(journal, wanted)).status == "completed"
        assert (await journal.get(left.id)).last_seq == 0
