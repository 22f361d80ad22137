"""Several `loom-kb serve --http` on one home, as behind a balancer that sends every request elsewhere."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from itertools import cycle

import httpx2
import pytest

VERSION = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": VERSION,
    "io.modelcontextprotocol/clientInfo": {"name": "t", "version": "1"},
    "io.modelcontextprotocol/clientCapabilities": {"elicitation": {"form": {}}},
}
MANY = [f"nothing-{number}" for number in range(20)]


class Balanced:
    """Sends each request to the next worker."""

    def __init__(self, web, urls):
        self._web = web
        self._urls = cycle(urls)

    def ask(self, method, **params):
        headers = {
            "Accept": "application/json, text/event-stream",
            "MCP-Protocol-Version": VERSION,
            "Mcp-Method": method,
            **({"Mcp-Name": params["name"]} if "name" in params else {}),
        }
        body = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **params}}
        answer = self._web.post(next(self._urls), json=body, headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()["result"]

    def call(self, tool, *, more=None, **arguments):
        return self.ask("tools/call", name=tool, arguments=arguments, **(more or {}))


@pytest.fixture
def workers(home):
    """Two workers that have no secret in common but what lies in their home."""
    command = [sys.executable, "-m", "loom_kb", "serve", "--http", "--port", "0"]
    with ExitStack() as stack:
        urls = []
        for _ in range(2):
            process = stack.enter_context(
                subprocess.Popen(
                    [*command, "--home", str(home), "--embedder", "hashing"],
                    stderr=subprocess.PIPE,
                    text=True,
                    encoding="utf-8",
                )
            )
            stack.callback(process.terminate)
            lines = iter(process.stderr.readline, "")
            urls.append(next(line.split()[2] for line in lines if line.startswith("loom-kb serves ")))
        yield Balanced(stack.enter_context(httpx2.Client(timeout=60)), urls)


def test_what_one_worker_takes_in_the_other_finds(workers):
    for number in range(4):
        added = workers.call("add", text=f"# 灯塔 {number}\n\n第 {number} 座灯塔由李明看守。", source="笔记")
        assert not added.get("isError"), added
        for _ in range(2):
            found = workers.call("query", query=f"第 {number} 座灯塔由谁看守？", source="笔记")
            assert f"第 {number} 座灯塔由李明看守" in found["content"][0]["text"]


def test_a_question_of_one_worker_may_be_answered_to_the_other(workers):
    added = workers.call("add", text="# 灯塔\n\n青岛的灯塔是红色的。", source="笔记")
    ids = [added["structuredContent"]["documents"][0]["id"], *MANY]
    asked = workers.call("remove", ids=ids, source="笔记")
    assert asked["resultType"] == "input_required"
    ((name, question),) = asked["inputRequests"].items()
    assert "Remove 21 documents" in question["params"]["message"]

    agreed = {
        "requestState": asked["requestState"],
        "inputResponses": {name: {"action": "accept", "content": {}}},
    }
    removed = workers.call("remove", ids=ids, source="笔记", more=agreed)
    assert [document["id"] for document in removed["structuredContent"]["removed"]] == ids[:1]
