"""One flow file takes the place of another, and what is under way keeps what it began with."""

from __future__ import annotations

import anyio
import pytest

from loom_core.errors import ConfigError
from loom_core.flow.runtime.runtime import FlowRuntime, RuntimeManager, RuntimeOverrides
from loom_core.flow.turns.session import ConversationStore
from loom_core.runs.journal import Journal
from loom_core.runs.memory import SQLiteMemory
from tests.unit.flow.conftest import LEAVE, ORDER, loaded_flows


def in_use() -> RuntimeManager:
    journal = Journal()
    conversations = ConversationStore(journal, SQLiteMemory(journal=journal))
    return RuntimeManager(
        loaded_flows(LEAVE), RuntimeOverrides(), journal=journal, texts=conversations.messages
    )


async def is_gone(runtime: FlowRuntime) -> bool:
    with anyio.move_on_after(0.05) as scope:
        await runtime.wait_until_released()
    return not scope.cancelled_caught


async def test_what_is_used_stays_until_it_is_not_used_any_more() -> None:
    async with in_use() as files:
        with files.current.acquire() as old:
            await files.reload(loaded_flows(ORDER), RuntimeOverrides(answer_seconds=5.0))
            assert files.current.titles == ["查订单"]
            assert files.overrides.answer_seconds == 5.0
            assert not await is_gone(old)
        assert await is_gone(old)
        assert not await is_gone(files.current)


async def test_a_file_that_cannot_be_used_changes_nothing() -> None:
    wrong = {**ORDER, "endpoint": None, "steps": [{"stepId": "call", "tool": "nowhere"}]}
    async with in_use() as files:
        before, overrides = files.current, files.overrides
        with pytest.raises(ConfigError):
            await files.reload(loaded_flows(wrong), RuntimeOverrides())
        assert files.current is before
        assert files.overrides is overrides


async def test_it_is_exchanged_inside_its_block_only() -> None:
    files = in_use()
    with pytest.raises(RuntimeError, match="only inside its `async with` block"):
        await files.reload(loaded_flows(ORDER), RuntimeOverrides())
    async with files:
        files.check_open()
        last = files.current
    assert await is_gone(last)
    with pytest.raises(RuntimeError):
        files.check_open()


async def test_an_error_in_the_block_ends_it_and_is_passed_on() -> None:
    async def broken() -> None:
        async with in_use() as files:
            with files.current.acquire():
                raise ValueError("here")

    with anyio.fail_after(10), pytest.raises(ValueError, match="here"):
        await broken()
