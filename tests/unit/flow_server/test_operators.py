"""Operators at a command line and over MCP, and events by a command and by a webhook."""

from __future__ import annotations

import json
import re
import sys
from dataclasses import replace

import httpx2
import pytest
from loom_flow.app import build
from loom_flow.cli import run

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.server.auth.authentication import AuthSettings
from loom_core.server.auth.caller import Caller, use_caller
from loom_core.server.auth.tokens import TokenFile
from loom_core.server.serving.http_settings import HttpSettings
from tests.fixtures.serving import serving

PERSON = {
    "flow_id": "person",
    "trigger_patterns": ["人工", "talk to a person"],
    "steps": [
        {
            "stepId": "desk",
            "handover": {
                "text": "One moment. / 请稍等。",
                "queue": "front",
                "schema": {"type": "object", "properties": {"amount": {"type": "integer"}}},
            },
        }
    ],
    "response": "We refund {$steps.desk.outputs.result.amount}.",
}
PAID = {
    "flow_id": "pay",
    "trigger_patterns": ["pay (?P<order>\\w+)"],
    "input_schema": {"type": "object", "properties": {"order": {"type": "string"}}},
    "steps": [{"stepId": "paid", "wait_for": {"event": "payment.received", "key": "{$inputs.order}"}}],
    "response": "Thank you for {$steps.paid.outputs.result.amount}.",
}
CUSTOMER = Caller("shop", frozenset({"read", "write"}), id="token:shop")
ANNA = Caller("Anna", frozenset({"read", "write", "admin"}), id="token:anna")


@pytest.fixture
def command(home, capsys):
    """Runs a command on the home; gives the exit code, standard output and standard error."""

    def call(name, *arguments):
        code = run([name, "--home", str(home), *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


def test_an_operator_works_at_the_command_line(command, write):
    write(PERSON)
    assert command("operator")[1] == "No conversation waits for an operator.\n"
    code, out, _ = command("run", "person", "--message", "talk to a person", "--json")
    started = json.loads(out)
    run_id = started["run_id"]
    assert (code, started["pending"][0]["kind"]) == (3, "operator")
    assert "It waits for a person of the business" in started["next"]
    assert "waits, not for the user" in command("status", run_id)[1]

    listed = command("operator", "list")[1]
    assert run_id in listed
    assert re.search(r"since \d{4}-\d\d-\d\d \d\d:\d\d, waits in front\): talk to a person", listed)
    code, out, _ = command("operator", "say", run_id, "Is", "20", "fine?", "--as", "Anna")
    assert code == 0
    assert "Anna has it" in out
    code, _, err = command("operator", "return", run_id, "amount=20", "--as", "Bo")
    assert (code, "Anna has this conversation" in err) == (1, True)
    code, _, err = command("operator", "return", run_id, "amount=many", "--as", "Anna")
    assert (code, "`amount` must be an integer" in err) == (1, True)
    assert command("operator", "take", run_id, "--as", "Bo")[0] == 0
    code, out, _ = command("operator", "return", run_id, "amount=20", "--as", "Bo")
    assert (code, "We refund 20." in out) == (0, True)
    code, _, err = command("operator", "show", run_id)
    assert (code, "is not handed over to an operator" in err) == (1, True)


def test_an_event_at_the_command_line_reaches_the_run_with_its_key(command, write):
    write(PAID)
    assert command("run", "pay", "order=A1")[0] == 3
    code, _, err = command("event", "payment.received", "--key", "B2")
    assert (code, "No run waits for the event" in err) == (1, True)
    code, _, err = command("event", "payment.received", "{", "--key", "A1")
    assert (code, "is not JSON" in err) == (1, True)
    code, out, _ = command("event", "payment.received", '{"amount": 9}', "--key", "A1")
    assert (code, "completed" in out) == (0, True)


async def test_only_operators_have_the_tools_and_see_the_conversations_of_others(running, write, connect):
    write(PERSON)
    async with connect() as client:  # over stdio, the one user may do everything
        names = [tool.name for tool in (await client.list_tools()).tools]
        assert {"operator_queue", "operator_reply"} <= {*names}
    async with running() as service:
        with use_caller(CUSTOMER):
            reply = await service.chat("转人工")
            assert reply.text == "请稍等。"
            with pytest.raises(InvalidInputError, match="Only operators"):
                await service.operator_queue()
            with pytest.raises(InvalidInputError, match="Only operators"):
                await service.operate(reply.run_id, "return", by="me", agreed={"amount": 1000})
        with use_caller(ANNA):
            (found,) = await service.operator_queue()
            assert found.run.id == reply.run_id
        with use_caller(replace(ANNA, context={"tenantId": "other"})):
            assert await service.operator_queue() == []
            with pytest.raises(NotFoundError):
                await service.operate(reply.run_id, "say", by="Anna", text="Hello")


async def test_an_operator_answers_over_mcp(write, connect):
    write(PERSON)
    async with connect() as client:

        async def call(tool, **arguments):
            result = await client.call_tool(tool, arguments)
            assert not result.is_error, result.content[0].text
            return result.structured_content

        chat = await call("flow_chat", message="talk to a person")
        assert "not for the user" in chat["next"]
        (waiting,) = (await call("operator_queue"))["conversations"]
        said = {"run_id": waiting["run_id"], "name": "Anna"}
        shown = await call("operator_reply", **said, action="say", text="Hello")
        assert [each["text"] for each in shown["messages"]] == ["talk to a person", "One moment.", "Hello"]
        heard = await call("flow_chat", message="my lamp", session_id=chat["session_id"])
        assert heard["text"] == "Anna: Hello\n\nI have passed that on to my colleague."
        status = await call("flow_status", run_id=waiting["run_id"], after_seq=0)
        assert [
            each["payload"]["text"] for each in status["events"] if each["type"] == "operator_message"
        ] == ["Hello"]
        returned = await call("operator_reply", **said, action="return", agreed={"amount": 3})
        assert returned["run"]["status"] == "completed"
        unknown = await client.call_tool("operator_reply", {**said, "action": "shout"})
        assert unknown.is_error


@pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals")
async def test_a_webhook_sends_an_event(settings, write, tmp_path):
    write(PAID)
    tokens = TokenFile(tmp_path / "tokens.json")

    def header(name, *scopes):
        _, secret = tokens.create(name, scopes=scopes)
        return {"Authorization": f"Bearer {secret.get_secret_value()}"}

    own, other, reader = header("shop", "read", "write"), header("other", "write"), header("reader", "read")
    server = build(settings())
    http = HttpSettings(port=0, auth=AuthSettings(tokens.path))
    async with serving(server, http) as url, httpx2.AsyncClient() as web:
        hook = url.replace("/mcp", "/events?name=payment.received&key=/order/id")
        data = {"order": {"id": "A1"}, "amount": 9}
        assert (await web.post(hook, json=data)).status_code == 401
        assert (await web.post(hook, json=data, headers=reader)).status_code == 403
        answer = await web.post(hook, json=data, headers=own)
        assert (answer.status_code, answer.json()["error"]) == (
            404,
            "No run waits for the event 'payment.received' with the key 'A1'.",
        )
        for nothing in ({}, {"order": {"id": None}}):
            assert (await web.post(hook, json=nothing, headers=own)).status_code == 400
        answer = await web.post(hook, json={"order": {"id": True}}, headers=own)  # as a text of a flow has it
        assert "with the key 'true'" in answer.json()["error"]
        assert (await web.post(hook, content="{", headers=own)).status_code == 400
        assert (await web.get(hook, headers=own)).status_code == 405
        async with httpx2.AsyncClient(headers=own) as client_web:
            from mcp import Client
            from mcp.client.streamable_http import streamable_http_client

            async with Client(streamable_http_client(url, http_client=client_web)) as client:
                begun = await client.call_tool("flow_chat", {"message": "pay A1"})
                run_id = begun.structured_content["run_id"]
                assert (await web.post(hook, json=data, headers=other)).status_code == 404
                answer = await web.post(hook, json=data, headers=own)
                assert (answer.status_code, answer.json()) == (200, {"runs": [run_id]})
                status = await client.call_tool("flow_status", {"run_id": run_id, "wait_seconds": 20})
                assert status.structured_content["output"] == "Thank you for 9."
