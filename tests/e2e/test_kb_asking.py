"""`loom-kb` where a user has to agree, and where a client can wait for a task."""

from __future__ import annotations

import os
import sys

import anyio
import pytest
from mcp import Client, StdioServerParameters
from mcp_types import ElicitResult

TASKS = {"io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}}
MANY = [f"nothing-{i}" for i in range(20)]


@pytest.fixture
def target(home):
    arguments = ["-m", "loom_kb", "--home", str(home), "--embedder", "hashing"]
    return StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_many_documents_are_removed_only_if_the_user_agrees(mode, target):
    agreed, refused_again = ElicitResult(action="accept", content={}), ElicitResult(action="cancel")
    answers = [ElicitResult(action="decline"), agreed, refused_again]
    asked = []

    async def answer(_context, params):
        asked.append(params.message)
        return answers.pop(0)

    with anyio.fail_after(60):
        async with Client(target, mode=mode, elicitation_callback=answer) as client:
            added = await client.call_tool(
                "add", {"text": "# 灯塔\n\n青岛的灯塔是红色的。", "source": "笔记"}
            )
            job = {"id": added.structured_content["job"]["id"], "action": "wait"}
            assert not (await client.call_tool("job", job)).is_error
            listed = await client.call_tool("sources", {"source": "笔记"})
            (document,) = listed.structured_content["documents"]
            ids = [document["id"], *MANY]
            refused = await client.call_tool("remove", {"ids": ids, "source": "笔记"})
            assert refused.is_error
            assert refused.content[0].text.startswith("The user said no; nothing was done.")
            assert not (await client.call_tool("fetch", {"id": document["id"]})).is_error
            removed = await client.call_tool("remove", {"ids": ids, "source": "笔记"})
            assert [found["id"] for found in removed.structured_content["removed"]] == [document["id"]]
            unasked = await client.call_tool("remove", {"ids": ids, "source": "笔记", "confirm": True})
            assert unasked.content[0].text.startswith("The user closed the question; nothing was done.")
    question = "Remove 21 documents from the knowledge base 笔记? It cannot be undone"
    assert [message[: len(question)] for message in asked] == [question] * 3


def test_a_model_whose_client_cannot_ask_is_told_to_ask_itself(start_kb):
    server = start_kb()
    server.call("add", text="# Buoy\n\nThe buoy is red.")
    refused = server.call("remove", ids=["nothing", *MANY])
    assert refused["isError"]
    assert "call `remove` again with the same arguments and confirm: true" in refused["content"][0]["text"]
    assert not server.call("remove", ids=MANY).get("isError")
    assert not server.call("remove", ids=["nothing", *MANY], confirm=True).get("isError")


def test_waiting_for_a_job_is_a_task_for_clients_that_know_tasks(start_kb, until):
    server = start_kb()
    job = server.call("add", text="# Buoy\n\nThe buoy is red.")["structuredContent"]["job"]
    assert server.call("job", id=job["id"], action="wait")["structuredContent"]["jobs"][0]["state"] == "done"
    call = {"name": "job", "arguments": {"id": job["id"], "action": "wait"}, "_meta": TASKS}
    created = server.request("tools/call", call)
    assert created["resultType"] == "task"
    about = {"taskId": created["taskId"], "_meta": TASKS}
    task = until(lambda: (got := server.request("tasks/get", about))["status"] == "completed" and got)
    assert task["result"]["structuredContent"]["jobs"][0]["id"] == job["id"]


def test_an_addition_that_is_done_at_once_is_no_task(start_kb):
    server = start_kb()
    opened = server.call("add", text="# Pier")["structuredContent"]["job"]
    server.call("job", id=opened["id"], action="wait")
    call = {"name": "add", "arguments": {"text": "# Buoy\n\nThe buoy is red."}, "_meta": TASKS}
    result = server.request("tools/call", call)
    assert result["resultType"] == "complete"
    assert result["structuredContent"]["job"]["state"] == "done"
