"""Calls that a server continues as tasks: waited for, asked about, cancelled, and lost."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_core.mcp_client.callbacks import Callbacks
from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.mcp_client.registry import MCPToolRegistry
from loom_core.tools.interface import CallContext, Question, QuestionAnswer, ToolFailure, ToolOutput
from tests.fixtures.kitchen import Kitchen
from tests.fixtures.task_server import TaskServer, task_entry
from tests.unit.mcp_client.conftest import Opened

_NAME = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
_ASKED = {
    "method": "elicitation/create",
    "params": {"mode": "form", "message": "叫什么？", "requestedSchema": _NAME},
}


@pytest.fixture
def works() -> TaskServer:
    return TaskServer()


@pytest.fixture
def at_work(works: TaskServer, opened: Opened) -> AtWork:
    """Serves, and connects a registry: `async with at_work() as registry`; takes fields of the entry."""

    @asynccontextmanager
    async def connect(**fields: Any) -> AsyncGenerator[MCPToolRegistry]:
        async with works.serving() as url, opened(task_entry(url, **fields)) as registry:
            yield registry

    return connect


AtWork = Callable[..., AbstractAsyncContextManager[MCPToolRegistry]]


class _Call:
    """A call of the tool of a server, under way."""

    def __init__(self, registry: MCPToolRegistry, context: CallContext | None = None) -> None:
        self.output: ToolOutput | None = None
        self._registry = registry
        self._context = context

    async def run(self) -> None:
        tool = self._registry.find("works:build")
        self.output = await tool.call({"what": "桥"}, context=self._context)


@asynccontextmanager
async def _asking(
    works: TaskServer, home: Path, ask: Callable[[Question], Awaitable[QuestionAnswer]]
) -> AsyncGenerator[MCPToolRegistry]:
    """Serves, and connects a registry that answers questions."""
    async with (
        works.serving() as url,
        MCPToolRegistry(home=home, servers=[task_entry(url)], callbacks=Callbacks(ask=ask)) as registry,
    ):
        await registry.load_servers()
        yield registry


async def test_a_task_is_waited_for_and_reports_and_asks_as_any_call(
    tmp_path: Path, works: TaskServer
) -> None:
    said: list[str] = []
    kept: list[str] = []
    asked: list[Question] = []

    async def progress(_done: float, _total: float | None, message: str) -> None:
        said.append(message)

    async def ask(question: Question) -> QuestionAnswer:
        asked.append(question)
        return QuestionAnswer("accept", {"name": "彩虹桥"})

    async def no_one(_question: Question) -> QuestionAnswer:
        raise AssertionError("the call has its own `ask`")

    async def keep(task_id: str) -> None:
        kept.append(task_id)

    context = CallContext(progress=progress, ask=ask, keep_task=keep)
    async with _asking(works, tmp_path / "home", no_one) as registry, anyio.create_task_group() as group:
        call = _Call(registry, context)
        group.start_soon(call.run)
        await works.until(bool)
        works.write(status="input_required", statusMessage="要个名字", inputRequests={"q": _ASKED})
        state = await works.until(lambda it: "answers" in it)
        works.complete()

    assert state["answers"] == {"q": {"action": "accept", "content": {"name": "彩虹桥"}}}
    assert [(question.text, question.origin) for question in asked] == [("叫什么？", "works")]
    assert (said, kept) == (["要个名字"], ["1"])
    assert call.output is not None
    assert (call.output.text, call.output.is_error) == ("built", False)


@pytest.mark.parametrize("ends_at_once", [True, False])
async def test_a_question_is_withdrawn_when_the_task_does_not_wait_for_it_any_more(
    tmp_path: Path, works: TaskServer, ends_at_once: bool
) -> None:
    asked, withdrawn = anyio.Event(), anyio.Event()

    async def ask(_question: Question) -> QuestionAnswer:
        asked.set()
        try:
            await anyio.sleep_forever()
        finally:
            withdrawn.set()
        raise AssertionError

    async with _asking(works, tmp_path / "home", ask) as registry, anyio.create_task_group() as group:
        call = _Call(registry)
        group.start_soon(call.run)
        await works.until(bool)
        _ask(works, 1)
        await asked.wait()
        if not ends_at_once:
            works.write(status="working")
            await withdrawn.wait()
        works.complete()
    assert withdrawn.is_set()
    assert call.output is not None
    assert (call.output.text, call.output.is_error) == ("built", False)


def _fail(works: TaskServer, number: int) -> None:
    works.write(number, status="failed", error={"code": -32603, "message": "太重"})


def _call_off(works: TaskServer, number: int) -> None:
    works.write(number, status="cancelled", statusMessage="No time.")


def _ask(works: TaskServer, number: int) -> None:
    works.write(number, status="input_required", inputRequests={"q": _ASKED})


_ENDINGS: dict[Callable[[TaskServer, int], None], str] = {
    _fail: "answers the task of `build` with error -32603: 太重.",
    _call_off: "has cancelled the task of `build` (No time.); a part of it may have been done.",
    _ask: "asks, for `build`, what this client does not answer (Elicitation not supported)",
    TaskServer.forget: "does not know the task of `build`. It is not known whether `build` was carried out.",
    TaskServer.break_down: "with error -32603: 乱了. It is not known whether `build` was carried out.",
}


async def test_a_task_that_ends_without_a_result_is_an_error_that_says_so(
    works: TaskServer, at_work: AtWork
) -> None:
    async with at_work() as registry:
        for number, (end, text) in enumerate(_ENDINGS.items(), 1):
            call = _Call(registry)
            async with anyio.create_task_group() as group:
                group.start_soon(call.run)
                await works.until(bool, number)
                end(works, number)

            assert call.output is not None
            assert call.output.is_error
            assert text in call.output.text
        assert works.tasks["3"]["status"] == "cancelled", "it would wait for ever"


async def test_a_call_that_is_cancelled_cancels_its_task(works: TaskServer, at_work: AtWork) -> None:
    begun = anyio.Event()

    async def progress(_done: float, _total: float | None, _message: str) -> None:
        begun.set()

    async with at_work() as registry, anyio.create_task_group() as group:
        group.start_soon(_Call(registry, CallContext(progress=progress)).run)
        await works.until(bool)
        works.write(statusMessage="on it")
        await begun.wait()
        group.cancel_scope.cancel()

    assert works.tasks["1"]["status"] == "cancelled"


async def test_a_task_that_takes_longer_than_the_call_may_is_cancelled(
    works: TaskServer, at_work: AtWork
) -> None:
    async with at_work() as registry:
        works.write()
        call = _Call(registry, CallContext(task_id="1", seconds=0.01))
        await call.run()

    assert call.output is not None
    assert "It is not known whether `build` was carried out." in call.output.text
    assert call.output.failure == ToolFailure("timeout")
    assert works.tasks["1"]["status"] == "cancelled"


async def test_a_task_that_a_run_keeps_is_cancelled_only_when_it_is_abandoned(
    works: TaskServer, at_work: AtWork
) -> None:
    kept = anyio.Event()

    async def keep(_task_id: str) -> None:
        kept.set()

    async with at_work() as registry:
        async with anyio.create_task_group() as group:
            group.start_soon(_Call(registry, CallContext(keep_task=keep)).run)
            await kept.wait()
            group.cancel_scope.cancel()
        assert works.tasks["1"]["status"] == "working"
        await registry.find("works:build").abandon(context=CallContext(task_id="1"))

    assert works.tasks["1"]["status"] == "cancelled"


async def test_a_server_that_is_away_meanwhile_is_asked_again_and_not_called_again(
    works: TaskServer, opened: Opened
) -> None:
    async with AsyncExitStack() as server:
        url = await server.enter_async_context(works.serving())
        async with opened(task_entry(url)) as registry, anyio.create_task_group() as group:
            call = _Call(registry)
            group.start_soon(call.run)
            await works.until(bool)
            await server.aclose()
            works.complete()
            await server.enter_async_context(works.serving())

    assert call.output is not None
    assert (call.output.text, len(works.calls)) == ("built", 1)


async def test_a_client_of_the_old_era_gets_no_task(works: TaskServer, at_work: AtWork) -> None:
    fields: dict[str, Any] = {"era": "legacy"}
    async with at_work(**fields) as registry:
        output = await registry.find("works:build").call({"what": "桥"})

    assert (output.text, works.calls) == ("桥 at once", [])


async def test_tasks_of_looms_own_servers_are_calls_like_any_other(
    tmp_path: Path, serving: Callable[..., AbstractAsyncContextManager[str]]
) -> None:
    async def ask(_question: Question) -> QuestionAnswer:
        return QuestionAnswer("accept", {"name": "李雷"})

    kitchen = Kitchen()
    kitchen.go_on.set()
    async with serving(kitchen.server) as url:
        entry = ServerConfig(name="kitchen", transport="http", url=url)
        async with MCPToolRegistry(
            home=tmp_path / "home", servers=[entry], callbacks=Callbacks(ask=ask)
        ) as registry:
            await registry.load_servers()
            cooked = await registry.find("kitchen:cook").call({"dish": "饺子"})
            baked = await registry.find("kitchen:bake").call({})
            named = await registry.find("kitchen:ask_first").call({})
            burned = await registry.find("kitchen:burn").call({"how": "model"})

    assert [each.text for each in (cooked, baked, named)] == ["饺子 as a task", "baked", "李雷"]
    assert (cooked.structured, burned.is_error) == ({"said": "饺子 as a task"}, True)
    assert "There is no 锅." in burned.text
