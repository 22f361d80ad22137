"""The handshake that is answered before the SDK is loaded: the same as the SDK's, and nothing doubtful."""

from __future__ import annotations

import json

import anyio
import loom_agent.cli
import loom_flow.cli
import loom_kb.cli
import loom_query.cli
import pytest
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from loom_core.server.protocol.handshake import Handshake, Introduction

PREFIX = "io.modelcontextprotocol/"
CLIENT = {"name": "客户端", "version": "1"}
META = {
    f"{PREFIX}protocolVersion": "2026-07-28",
    f"{PREFIX}clientCapabilities": {},
    f"{PREFIX}clientInfo": CLIENT,
}
HELLO = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": CLIENT}

SERVERS = {
    "loom-kb": (loom_kb.cli.SERVER, []),
    "loom-kb for ChatGPT": (loom_kb.cli.SERVER, ["--profile", "chatgpt"]),
    "loom-query-server": (loom_query.cli.SERVER, []),
    "loom-query-server for ChatGPT": (loom_query.cli.SERVER, ["--profile", "chatgpt"]),
    "loom-agent-server": (loom_agent.cli.SERVER, []),
    "loom-flow-server": (loom_flow.cli.SERVER, []),
}


def request(method, params, id_=7):
    return {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}


def discover(id_=7, **meta):
    return request("server/discover", {"_meta": {**META, **meta}}, id_)


def initialize(id_=7, **params):
    return request("initialize", {**HELLO, **params}, id_)


def line_of(message):
    return message if isinstance(message, bytes) else json.dumps(message).encode() + b"\n"


async def answer_of_sdk(server, message):
    requests_send, requests = anyio.create_memory_object_stream[SessionMessage | Exception](1)
    answers_send, answers = anyio.create_memory_object_stream[SessionMessage](1)
    async with anyio.create_task_group() as tasks, answers, requests_send:
        tasks.start_soon(server.run, requests, answers_send, server.create_initialization_options())
        parsed = jsonrpc_message_adapter.validate_json(json.dumps(message), by_name=False)
        await requests_send.send(SessionMessage(parsed))
        with anyio.fail_after(10):
            answer = (await answers.receive()).message
        requests_send.close()
    return json.loads(answer.model_dump_json(by_alias=True, exclude_unset=True))


@pytest.fixture
def handshake():
    return Handshake(Introduction(name="书架", version="1", title="Shelf"))


@pytest.mark.parametrize("name", SERVERS)
async def test_a_server_introduces_itself_as_the_sdk_would(name, home):
    server, options = SERVERS[name]
    settings = server.settings_of(server.parser().parse_args(["serve", "--home", str(home), *options]))
    introduction = server.introduction(settings)
    assert introduction.name == server.name
    protocol = server.build(settings).protocol
    bare = discover("no client information")
    del bare["params"]["_meta"][f"{PREFIX}clientInfo"]
    traced = discover(traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", progressToken=1)
    by_version = [initialize(protocolVersion=version) for version in HANDSHAKE_PROTOCOL_VERSIONS]
    for message in (discover(), bare, traced, *by_version):
        answer = Handshake(introduction).answer(line_of(message))
        assert json.loads(answer) == await answer_of_sdk(protocol, message)


def test_a_handshake_is_any_number_of_probes_and_an_initialize(handshake):
    for id_ in (1, "two", -3):
        assert json.loads(handshake.answer(line_of(discover(id_))))["id"] == id_
    cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}
    assert handshake.answer(line_of(cancelled)) == b""
    assert handshake.is_open
    assert json.loads(handshake.answer(line_of(initialize(4))))["id"] == 4
    assert (handshake.is_open, handshake.initialize_id) == (False, 4)


@pytest.mark.hostile("MCP requests")
@pytest.mark.parametrize(
    "message",
    [
        discover(**{f"{PREFIX}protocolVersion": "2099-01-01"}),
        discover(**{f"{PREFIX}clientCapabilities": None}),
        discover(**{f"{PREFIX}clientInfo": {"name": "no version"}}),
        discover(id_=True),
        discover(id_="\ud800"),
        discover(id_=None),
        request("server/discover", {}),
        request("server/discover", {"_meta": 5}),
        {**discover(), "jsonrpc": "1.0"},
        {"jsonrpc": "2.0", "method": "server/discover", "params": {"_meta": META}},
        initialize(protocolVersion="1999-01-01"),
        initialize(protocolVersion=["2025-11-25"]),
        initialize(capabilities=None),
        initialize(clientInfo={"name": 5, "version": "1"}),
        initialize(padding="x" * 70_000),
        request("tools/list", {"_meta": META}),
        request("ping", {}),
        {"jsonrpc": "2.0", "id": 7, "method": "initialize"},
        {"jsonrpc": "2.0", "id": 7, "method": "initialize", "params": [1]},
        {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": [7]}},
        {"jsonrpc": "2.0", "method": "notifications/initialized"},
        [discover()],
        b"\n",
        b"garbage \xff\n",
        b"[" * 60_000 + b"\n",
        b'{"id": 7, "method": "initialize", "params": ' + b'{"a": ' * 9_000 + b"\n",
    ],
)
def test_what_is_not_surely_valid_is_left_to_the_sdk_and_so_is_all_after_it(handshake, message):
    assert handshake.answer(line_of(message)) is None
    assert not handshake.is_open
    assert handshake.initialize_id is None
