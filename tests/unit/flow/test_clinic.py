"""The example examples/clinic: its messages, and conversations with its API."""

from __future__ import annotations

import asyncio
import runpy
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

import anyio
import pytest
import uvicorn

from loom_core.flow import EndpointCaller, WorkflowOrchestrator, read_flow_file
from loom_core.flow.regression import check_utterances, read_utterances
from loom_core.flow.understanding.moments import situation

_EXAMPLE = Path(__file__).parents[3] / "examples" / "clinic"
_WEDNESDAY = datetime.fromisoformat("2026-11-25T09:00:00+08:00")

pytestmark = pytest.mark.slow


async def test_the_messages_of_the_clinic_are_handled_as_people_expect() -> None:
    loaded = read_flow_file(_EXAMPLE / "flow.json")
    utterances = read_utterances((_EXAMPLE / "utterances.jsonl").read_text(encoding="utf-8"))
    report = await check_utterances(loaded, utterances)
    assert [str(each) for each in report.differences] == []
    assert report.checked == 159


@asynccontextmanager
async def _desk() -> AsyncGenerator[Any]:
    """A conversation with the desk, whose API runs on this machine."""
    clinic = runpy.run_path(str(_EXAMPLE / "stub_api.py"))["Clinic"]()
    listener = socket.create_server(("127.0.0.1", 0))
    config = uvicorn.Config(clinic.app(), log_level="error", lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    serving = asyncio.create_task(server.serve([listener]))
    with anyio.fail_after(30):
        while not server.started:
            await anyio.lowlevel.checkpoint()
    loaded = read_flow_file(_EXAMPLE / "flow.json")
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    loaded = replace(loaded, file=loaded.file.model_copy(update={"flow_url": url}))
    try:
        async with EndpointCaller(loaded.file) as caller, WorkflowOrchestrator(loaded, {}, caller) as desk:
            session = ""

            async def say(message: str) -> str:
                nonlocal session
                with situation(_WEDNESDAY, "zh"):
                    reply = await desk.query(message, session_id=session)
                session = reply.session_id
                return str(reply)

            say.clinic = clinic  # type: ignore[attr-defined]
            yield say
    finally:
        server.should_exit = True
        await serving


async def test_a_booking_by_free_times_with_an_emergency_in_between() -> None:
    async with _desk() as say:
        assert "周日休息" in await say("约牙科 周日")
        assert (await say("那就周五")).startswith("2026年11月27日（周五）的牙科有这些时间")
        assert (await say("10点")).startswith("没有“10点”这一项")
        assert await say("下午三点") == "病人叫什么名字？"
        assert (await say("我爸晕倒了")).startswith("请马上拨打 120")
        agreed = await say("我叫李娜，电话是139 1234 5678")
        assert agreed == "给李娜预约牙科，2026年11月27日（周五）15:00，手机+8613912345678，对吗？"
        assert (await say("对")).endswith("预约号 K2001。")


async def test_a_conflict_asks_for_the_time_again_and_a_wrong_code_for_another() -> None:
    async with _desk() as say:
        agreed = await say("Book an eye appointment on Friday at 2pm, Ann Lee, 13612345678")
        assert agreed == "Book Eye for Ann Lee, Friday, 27 November 2026, 14:00, phone +8613612345678?"
        say.clinic.bookings["K3000"] = {"department": "EYE", "date": "2026-11-27", "time": "14:00"}
        asked = await say("yes")
        assert asked.startswith("14:00 is already taken. Eye has these times")
        assert "14:00" not in asked.split("\n", 1)[1]
        assert "11:00" in await say("11 am")
        assert (await say("yes")).endswith("Your code is K2001.")
        assert "no booking K9999" in await say("cancel K9999")
        assert await say("K2001") == "Cancel K2001 (Eye, 2026-11-27 11:00)?"
        assert await say("yes cancel it") == "K2001 is cancelled."
        assert "K2001" not in say.clinic.bookings
