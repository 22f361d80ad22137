"""Clients that probe with `server/discover` before they choose an era, whatever the order and the timing."""

from __future__ import annotations

import json

import anyio
import pytest
from mcp.server import Server
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from tests.unit.server.sample import sample_server

VERSION = "io.modelcontextprotocol/protocolVersion"
META = {
    VERSION: "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
    "io.modelcontextprotocol/clientInfo": {"name": "探测", "version": "1"},
}
INITIALIZE = {
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "探测", "version": "1"},
    },
}
DISCOVER = {"method": "server/discover", "params": {"_meta": META}}
FUTURE = {"method": "server/discover", "params": {"_meta": {**META, VERSION: "2099-01-01"}}}
BROKEN = {"method": "server/discover", "params": {"_meta": {VERSION: "2026-07-28"}}}
CANCELLED = {"method": "notifications/cancelled", "params": {"requestId": 0, "reason": "超时"}}
INITIALIZED = {"method": "notifications/initialized"}
LIST = {"method": "tools/list", "params": {}}
MODERN_LIST = {"method": "tools/list", "params": {"_meta": META}}

TOLD = "initialize"  # what is expected of an answer: the result of a handshake,
FOUND = "discover"  # of a probe,
LISTED = "tools"  # of a list; or the code of an error


def with_ids(messages):
    """The messages of one connection; a request has its index for an id."""
    return [
        {"jsonrpc": "2.0", **({} if message["method"].startswith("notifications/") else {"id": i}), **message}
        for i, message in enumerate(messages)
    ]


def kind(answer):
    if "error" in answer:
        return answer["error"]["code"]
    result = answer["result"]
    return next(
        name
        for key, name in (("protocolVersion", TOLD), ("supportedVersions", FOUND), ("tools", LISTED))
        if key in result
    )


async def answers_of(server, messages, *, one_by_one):
    """The answers of a server over a stream, by id."""
    requests_send, requests = anyio.create_memory_object_stream[SessionMessage | Exception](100)
    answers_send, answers = anyio.create_memory_object_stream[SessionMessage](100)
    got = {}

    async def receive():
        message = (await answers.receive()).message.model_dump(mode="json", by_alias=True, exclude_unset=True)
        got[message["id"]] = kind(message)

    async with anyio.create_task_group() as tasks, answers:
        tasks.start_soon(server.run, requests, answers_send, server.create_initialization_options())
        with anyio.fail_after(10):
            for message in with_ids(messages):
                parsed = jsonrpc_message_adapter.validate_json(json.dumps(message), by_name=False)
                await requests_send.send(SessionMessage(parsed))
                if one_by_one and "id" in message:
                    await receive()
            while len(got) < sum("id" in message for message in with_ids(messages)):
                await receive()
        requests_send.close()
    return [got[i] for i in sorted(got)]


@pytest.mark.parametrize("one_by_one", [True, False], ids=["one-by-one", "pipelined"])
@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([DISCOVER, INITIALIZE, INITIALIZED, LIST], [FOUND, TOLD, LISTED]),
        ([DISCOVER, CANCELLED, INITIALIZE, INITIALIZED, LIST], [FOUND, TOLD, LISTED]),
        ([DISCOVER, DISCOVER, DISCOVER, INITIALIZE, LIST], [FOUND, FOUND, FOUND, TOLD, LISTED]),
        ([FUTURE, INITIALIZE, INITIALIZED, LIST], [-32022, TOLD, LISTED]),
        ([FUTURE, DISCOVER, MODERN_LIST], [-32022, FOUND, LISTED]),
        ([BROKEN, INITIALIZE, INITIALIZED, LIST], [-32602, TOLD, LISTED]),
        ([INITIALIZE, DISCOVER, INITIALIZED, LIST], [TOLD, -32600, LISTED]),
        ([INITIALIZE, INITIALIZED, LIST], [TOLD, LISTED]),
        ([DISCOVER, MODERN_LIST, DISCOVER], [FOUND, LISTED, FOUND]),
        ([MODERN_LIST], [LISTED]),
    ],
)
async def test_probes_leave_the_choice_of_an_era_open(messages, expected, one_by_one):
    if one_by_one is False and CANCELLED in messages:
        messages = [message for message in messages if message is not CANCELLED]  # it may come in time
    assert await answers_of(sample_server([]).protocol, messages, one_by_one=one_by_one) == expected


@pytest.mark.parametrize("probes", [0, 1])
async def test_a_handshake_is_refused_once_a_request_of_the_modern_era_was_served(probes):
    messages = [*[DISCOVER] * probes, MODERN_LIST, INITIALIZE, MODERN_LIST]
    answers = await answers_of(sample_server([]).protocol, messages, one_by_one=True)
    assert answers == [*[FOUND] * probes, LISTED, -32022, LISTED]


async def test_a_request_of_the_modern_era_is_refused_after_a_handshake():
    messages = [DISCOVER, INITIALIZE, INITIALIZED, MODERN_LIST, LIST]
    answers = await answers_of(sample_server([]).protocol, messages, one_by_one=True)
    assert answers == [FOUND, TOLD, -32600, LISTED]


async def test_the_sdk_still_takes_a_probe_for_the_choice_of_an_era():
    """If this fails, the SDK accepts a handshake after a probe: protocol/negotiation.py can go."""
    assert await answers_of(Server("bare"), [DISCOVER, INITIALIZE], one_by_one=True) == [FOUND, -32022]
