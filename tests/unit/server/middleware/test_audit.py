"""Audit of a server over the in-memory transport, and of requests that are refused."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest
from mcp import Client
from pydantic import BaseModel

from loom_core.errors import InvalidInputError
from loom_core.observability.log_fields import current_fields
from loom_core.server.auth.caller import Caller
from loom_core.server.auth.refusal import Refusal, RefusalReason
from loom_core.server.middleware.audit import RefusalAudit
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import ToolReply, tool_result
from loom_core.server.serving.http_app import http_app
from loom_core.server.serving.http_settings import HttpSettings
from loom_core.tools.auditing.audit import AUDIT_FIELDS, AuditLog
from loom_core.tools.auditing.file import read_entries
from tests.fixtures.asker import Asker
from tests.fixtures.serving import serving

pytestmark = pytest.mark.slow


class _Done(BaseModel):
    done: bool = True


class _Begun(BaseModel):
    run_id: str


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "audit" / "audit.jsonl"


@pytest.fixture
def server(path: Path) -> LoomServer:
    server = LoomServer("sample", version="1", title="Sample", audit=AuditLog(path, server="sample"))

    def tool(read_only: bool) -> Any:
        return server.tool(
            title="T",
            description="D.",
            read_only=read_only,
            destructive=not read_only,
            idempotent=False,
            open_world=False,
        )

    async def look() -> ToolReply[_Done]:
        return tool_result("looked", _Done())

    async def write(text: str, password: str = "") -> ToolReply[_Done]:
        if text == "wrong":
            raise InvalidInputError("That is wrong.")
        if text == "forever":
            await anyio.sleep_forever()
        return tool_result(json.dumps(dict(current_fields())), _Done())

    tool(True)(look)
    tool(False)(write)
    return server


def entries(path: Path) -> list[dict[str, Any]]:
    return list(read_entries(path))


async def are_on_file(path: Path, number: int) -> None:
    with anyio.fail_after(30):
        while len(entries(path)) < number:  # noqa: ASYNC110 - a file tells no one
            await anyio.sleep(0.01)


async def test_a_call_that_may_change_something_is_on_file_before_and_after(
    server: LoomServer, path: Path
) -> None:
    async with Client(server.protocol) as client:
        await client.call_tool("look", {})
        await client.call_tool("write", {"text": "记下来", "password": "p4ssword"})
        await client.call_tool("write", {"text": "wrong"})

    begun, ended, begun_again, failed = entries(path)
    assert (begun["kind"], begun["tool"], begun["server"], begun["caller"], begun["source"]) == (
        "start", "write", "sample", "local", "stdio",
    )  # fmt: skip
    assert begun["client"].startswith("mcp ")
    assert begun["arguments"] == {"text": "记下来", "password": "[secret]"}
    assert (ended["kind"], ended["outcome"], ended["call"]) == ("end", "success", begun["call"])
    assert begun_again["kind"] == "start"
    assert (failed["kind"], failed["outcome"]) == ("end", "error")
    assert set().union(*entries(path)) <= set(AUDIT_FIELDS)


async def test_a_call_that_is_cancelled_is_on_file_as_that(server: LoomServer, path: Path) -> None:
    async with Client(server.protocol) as client:
        async with anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "write", {"text": "forever"})
            await are_on_file(path, 1)
            group.cancel_scope.cancel()
        await are_on_file(path, 2)

    assert [entry.get("outcome") for entry in entries(path)] == [None, "cancelled"]


async def test_what_cannot_be_put_on_file_is_not_done_and_reading_goes_on(
    server: LoomServer, path: Path
) -> None:
    path.mkdir(parents=True)  # noqa: ASYNC240
    async with Client(server.protocol) as client:
        refused = await client.call_tool("write", {"text": "x"})
        looked = await client.call_tool("look", {})

    assert refused.is_error
    assert "could not be written to the audit log" in refused.content[0].text
    assert not looked.is_error


@pytest.mark.hostile("MCP requests")
@pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals")
async def test_a_call_that_is_nested_too_deeply_for_the_audit_is_no_internal_error(
    server: LoomServer,
) -> None:
    nested: list[Any] = []
    for _ in range(700):
        nested = [nested]
    async with serving(server, HttpSettings(port=0)) as url, httpx2.AsyncClient() as web:
        answer = await Asker(web, url).call("write", {}, text=nested)

    assert answer.json()["result"]["isError"]


async def test_the_log_knows_which_request_a_line_belongs_to(server: LoomServer) -> None:
    async with Client(server.protocol) as client:
        answer = await client.call_tool("write", {"text": "x"})

    fields = json.loads(answer.content[0].text)
    assert fields["tool"] == "write"
    assert fields["method"] == "tools/call"
    assert fields["caller"] == "local"
    assert fields["request_id"]
    assert "session" not in fields


def _refusal(reason: RefusalReason, caller: Caller | None = None) -> Refusal:
    return Refusal(401, reason, "No.", caller=caller)


async def test_who_is_not_let_in_is_on_file_once_for_each_address_with_how_often_it_was(path: Path) -> None:
    now = [100.0]
    refusals = RefusalAudit(AuditLog(path, server="s"), pause=60.0, clock=lambda: now[0])
    known = Caller("旧令牌", frozenset({"read"}), id="7")
    for _ in range(3):
        await refusals.note(_refusal("bad_token"), source="10.0.0.1", request="POST /mcp")
    await refusals.note(_refusal("bad_token"), source="10.0.0.2", request="POST /mcp")
    await refusals.note(_refusal("expired_token", known), source="10.0.0.1", request="POST /mcp")
    await refusals.note(_refusal("rate"), source="10.0.0.1", request="POST /mcp")
    now[0] += 60.0
    await refusals.note(_refusal("bad_token"), source="10.0.0.1", request="POST /mcp")

    told = [(entry["source"], entry["outcome"], entry["times"]) for entry in entries(path)]
    assert told == [
        ("10.0.0.1", "bad_token", 1),
        ("10.0.0.2", "bad_token", 1),
        ("10.0.0.1", "expired_token", 1),
        ("10.0.0.1", "bad_token", 3),
    ]
    assert entries(path)[2]["caller"] == "旧令牌"
    assert "arguments" not in entries(path)[0]


async def test_what_was_only_counted_is_written_with_the_next_refusal_of_anyone_and_at_the_end(
    path: Path,
) -> None:
    now = [100.0]
    refusals = RefusalAudit(AuditLog(path), pause=60.0, clock=lambda: now[0])

    async def refused(source: str, *, times: int = 1) -> None:
        for _ in range(times):
            await refusals.note(_refusal("bad_token"), source=source, request="POST /mcp")

    def told() -> list[tuple[str, int]]:
        return [(entry["source"], entry["times"]) for entry in entries(path)]

    await refused("10.0.0.1", times=300)
    assert told() == [("10.0.0.1", 1)]
    now[0] += 59.0
    await refused("10.0.0.2", times=2)
    assert told()[1:] == [("10.0.0.2", 1)]
    now[0] += 1.0
    await refused("10.0.0.2", times=2)
    assert told()[2:] == [("10.0.0.1", 299)]
    await refusals.write_counts()
    assert told()[3:] == [("10.0.0.2", 3)]
    await refusals.write_counts()
    assert len(told()) == 4


async def test_the_end_of_a_server_has_on_file_how_many_were_not_let_in(path: Path) -> None:
    server = LoomServer("sample", version="1", title="Sample", audit=AuditLog(path))
    app = http_app(server, HttpSettings())
    transport = httpx2.ASGITransport(app=app)
    async with app.router.lifespan_context(app), httpx2.AsyncClient(transport=transport) as web:
        for _ in range(5):
            answer = await web.post("http://127.0.0.1/mcp", headers={"origin": "https://evil.example"})
            assert answer.status_code == 403

    assert [(entry["outcome"], entry["times"]) for entry in entries(path)] == [("origin", 1), ("origin", 4)]


async def test_the_end_of_a_call_names_the_run_that_it_has_begun(path: Path) -> None:
    server = LoomServer("sample", version="1", title="Sample", audit=AuditLog(path))

    @server.tool(
        title="T", description="D.", read_only=False, destructive=False, idempotent=False, open_world=False
    )
    async def begin() -> ToolReply[_Begun]:
        return tool_result("begun", _Begun(run_id="run_7"))

    async with Client(server.protocol) as client:
        await client.call_tool("begin", {})

    assert [(entry["kind"], entry.get("run", "")) for entry in entries(path)] == [
        ("start", ""),
        ("end", "run_7"),
    ]


@pytest.mark.hostile("HTTP requests")
async def test_a_flood_from_many_addresses_fills_neither_memory_nor_file(path: Path) -> None:
    refusals = RefusalAudit(AuditLog(path), pause=60.0)
    for number in range(1200):
        await refusals.note(
            _refusal("no_token"), source=f"10.0.{number // 250}.{number % 250}", request="GET /"
        )

    assert len(entries(path)) == 1001
    assert entries(path)[-1]["source"] == "others"
