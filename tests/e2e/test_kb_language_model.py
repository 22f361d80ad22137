"""`loom-kb` with a language model: a vendor's server on this machine, as strict as the vendor's own."""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import anyio
import pytest
import uvicorn
from loom_kb.texts import UNFORESEEN_QUESTION
from mcp import Client, StdioServerParameters
from mcp_types import ElicitRequestFormParams, ElicitResult

from tests.fixtures.vendors.app import FakeVendors
from tests.fixtures.vendors.script import Recorded, Turn

TASKS: dict[str, Any] = {
    "io.modelcontextprotocol/clientCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}
}

# Nothing in them looks like a name to the rules.
TOWN = "in zell there is a lake that people call the blau, and it never freezes over.\n"
DEAR = "this text was not paid for"
LAKE = "# 泽尔\n\n在泽尔有一个湖，当地人叫它蓝湖，冬天从不结冰。\n"
SAID = {
    "zell": {
        "entities": [{"name": "zell", "type": "town"}, {"name": "blau", "type": "lake"}],
        "relations": [{"subject": "zell", "predicate": "has the lake", "object": "blau"}],
    },
    "泽尔": {
        "entities": [{"name": "泽尔", "type": "地点"}, {"name": "蓝湖", "type": "湖泊"}],
        "relations": [{"subject": "泽尔", "predicate": "有湖", "object": "蓝湖"}],
    },
}


def read(request: Recorded) -> Turn:
    """Return a model's extraction of the passage in a request, each request being about one."""
    shown = request.body["messages"][-1]["content"]
    if "<question>" in shown:
        return Turn(text="The lake never freezes over [1].")
    if DEAR in shown:
        return Turn(status=402)
    said = [found for name, found in SAID.items() if name in shown]
    return Turn(text=json.dumps({"passages": [{"passage": 1, **said[0]}]}, ensure_ascii=False))


class Vendor(NamedTuple):
    """A vendor's server that runs."""

    fake: FakeVendors
    url: str
    answering: threading.Event

    def config(self, **settings: Any) -> str:
        """Return its value for `--llm`."""
        config = {"provider": "deepseek", "model": "deepseek-flash", "base_url": self.url}
        return json.dumps({**config, "retry": {"attempts": 1}, **settings})


@pytest.fixture
def vendor(monkeypatch: pytest.MonkeyPatch) -> Iterator[Vendor]:
    answering = threading.Event()
    answering.set()

    def answer(request: Recorded) -> Turn:
        answering.wait(30)
        return read(request)

    fake = FakeVendors(answer, key="sk-of-no-value-to-anyone")
    monkeypatch.setenv("DEEPSEEK_API_KEY", fake.key)
    listening = socket.create_server(("127.0.0.1", 0))
    server = uvicorn.Server(uvicorn.Config(fake, log_config=None, lifespan="off"))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    yield Vendor(fake, f"http://127.0.0.1:{listening.getsockname()[1]}/deepseek", answering)
    server.should_exit = True
    thread.join(20)
    listening.close()


def done(server: Any, result: dict[str, Any]) -> dict[str, Any]:
    """The job of an `add`, when it is done."""
    id_ = result["structuredContent"]["job"]["id"]
    (job,) = server.call("job", id=id_, action="wait")["structuredContent"]["jobs"]
    assert job["state"] == "done", job
    return job


def relations(server: Any, entity: str) -> list[tuple[str, str, str]]:
    found = server.call("graph", entity=entity, source="notes")["structuredContent"]["relations"]
    return [(relation["subject"], relation["predicate"], relation["object"]) for relation in found]


def test_the_graph_holds_what_the_model_says_and_the_key_is_nowhere(
    start_kb: Callable[..., Any], vendor: Vendor, home: Path
):
    server = start_kb("--llm", vendor.config())
    assert vendor.fake.requests == []
    job = done(server, server.call("add", text=TOWN, source="notes"))
    done(server, server.call("add", text=LAKE, source="notes"))
    assert (job["tokens_read"], job["tokens_written"]) == (10, 20)
    assert ("zell", "has the lake", "blau") in relations(server, "zell")
    assert ("泽尔", "有湖", "蓝湖") in relations(server, "泽尔")
    listed = server.call("sources")
    assert listed["structuredContent"]["sources"][0]["extraction"] == "deepseek/deepseek-flash and rules"
    assert "10 tokens read and 20 written by a model" in server.call("job")["content"][0]["text"]
    asked = len(vendor.fake.requests)
    done(server, server.call("add", text=TOWN, source="notes"))
    assert len(vendor.fake.requests) == asked == 2
    assert server.close_input() == 0
    key = vendor.fake.key.encode()
    files = [path for path in home.rglob("*") if path.is_file()]
    assert files
    assert not [path for path in files if key in path.read_bytes()]
    assert vendor.fake.key not in server.stderr


def test_a_dear_job_waits_for_a_confirmation(start_kb: Callable[..., Any], vendor: Vendor):
    server = start_kb("--llm", vendor.config(prices={"input": 1e5, "output": 1e5}))
    asked = server.call("add", text=TOWN, source="notes")
    assert not asked.get("isError")
    assert "job" not in asked["structuredContent"]
    assert asked["structuredContent"]["estimate"]["passages"] == 1
    assert asked["structuredContent"]["estimate"]["cost"] > 1
    assert "confirm: true" in asked["content"][0]["text"]
    assert "US$" in asked["content"][0]["text"]
    assert vendor.fake.requests == []
    assert server.call("job")["structuredContent"]["jobs"] == []
    job = done(server, server.call("add", text=TOWN, source="notes", confirm=True))
    assert job["cost"] == pytest.approx(3.0)


async def test_a_dear_job_is_begun_if_the_user_agrees(home: Path, vendor: Vendor):
    dear = vendor.config(prices={"input": 1e5, "output": 1e5})
    arguments = ["-m", "loom_kb", "--home", str(home), "--embedder", "hashing", "--llm", dear]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    answers = [ElicitResult(action="decline"), ElicitResult(action="accept", content={})]
    asked: list[str] = []

    async def answer(_context: object, params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(params.message)
        return answers.pop(0)

    with anyio.fail_after(60):
        async with Client(server, elicitation_callback=answer) as client:
            refused = await client.call_tool("add", {"text": TOWN, "source": "notes"})
            assert refused.is_error
            assert vendor.fake.requests == []
            added = await client.call_tool("add", {"text": TOWN, "source": "notes", "confirm": True})
            job = added.structured_content["job"]["id"]
            waited = await client.call_tool("job", {"id": job, "action": "wait"})
    assert waited.structured_content["jobs"][0]["cost"] == pytest.approx(3.0)
    assert len(asked) == 2
    assert asked[0].startswith("A language model is to read 1 passages of 1 documents in 1 requests")


async def test_web_pages_are_read_without_a_limit_only_if_the_user_agrees(
    home: Path, vendor: Vendor, local_servers: Callable[..., Any]
):
    page = local_servers().answers("/镇", TOWN.encode(), Content_Type="text/plain; charset=utf-8")
    options = ["--llm", vendor.config(), "--allow-urls", "--allow-net", "127.0.0.0/8"]
    arguments = ["-m", "loom_kb", "--home", str(home), "--embedder", "hashing", *options]
    server = StdioServerParameters(command=sys.executable, args=arguments, env=dict(os.environ))
    asked: list[str] = []

    async def answer(_context: object, params: ElicitRequestFormParams) -> ElicitResult:
        asked.append(params.message)
        return ElicitResult(action="decline")

    with anyio.fail_after(60):
        async with Client(server, elicitation_callback=answer) as client:
            refused = await client.call_tool("add", {"urls": [page], "confirm": True})
    assert refused.content[0].text.startswith("The user said no; nothing was done.")
    assert asked == [UNFORESEEN_QUESTION]
    assert vendor.fake.requests == []


def test_an_addition_that_takes_long_is_a_task_that_can_be_cancelled(
    start_kb: Callable[..., Any], vendor: Vendor, until: Callable[..., Any]
):
    server = start_kb("--llm", vendor.config())
    vendor.answering.clear()
    try:
        call = {"name": "add", "arguments": {"text": TOWN, "source": "notes"}, "_meta": TASKS}
        created = server.request("tools/call", call)
        assert (created["resultType"], created["status"]) == ("task", "working")
        about = {"taskId": created["taskId"], "_meta": TASKS}
        until(lambda: server.request("tasks/get", about)["statusMessage"] == "0 of 1 documents")
        server.request("tasks/cancel", about)
        until(lambda: server.request("tasks/get", about)["status"] == "cancelled")
        (job,) = server.call("job")["structuredContent"]["jobs"]
        assert job["state"] == "cancelled"
    finally:
        vendor.answering.set()


def test_a_missing_key_is_told_before_anything_is_written_down(
    start_kb: Callable[..., Any], vendor: Vendor, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("DEEPSEEK_API_KEY")
    monkeypatch.setenv("PYTHON_KEYRING_BACKEND", "keyring.backends.null.Keyring")
    server = start_kb("--llm", vendor.config())
    refused = server.call("add", text=TOWN, source="notes")
    assert refused["isError"]
    assert "DEEPSEEK_API_KEY" in refused["content"][0]["text"]
    assert server.call("job")["structuredContent"]["jobs"] == []


def test_a_command_without_a_terminal_names_the_option(loom_kb: Callable[..., Any], vendor: Vendor):
    dear = vendor.config(prices={"input": 1e5, "output": 1e5})
    refused = loom_kb("add", "-", "--llm", dear, stdin=LAKE.encode())
    assert refused.returncode == 1
    assert b"Agree to it with --yes." in refused.stderr
    assert vendor.fake.requests == []
    added = loom_kb("add", "-", "--yes", "--llm", dear, "--json", stdin=LAKE.encode())
    assert added.returncode == 0, added.stderr
    assert json.loads(added.stdout)["job"]["cost"] == pytest.approx(3.0)
    forgotten = loom_kb("add", "-", stdin=TOWN.encode())
    assert forgotten.returncode == 1
    assert b"deepseek/deepseek-flash read the documents" in forgotten.stderr


@pytest.mark.parametrize(
    ("text", "key", "why"),
    [
        (DEAR, "", b"has no credit or quota left for deepseek-flash"),
        (TOWN, "sk-wrong", b"does not let this key use"),
    ],
    ids=["402", "401"],
)
def test_a_command_that_waits_for_a_server_ends_where_the_servers_model_cannot_be_asked(
    start_kb: Callable[..., Any],
    loom_kb: Callable[..., Any],
    vendor: Vendor,
    monkeypatch: pytest.MonkeyPatch,
    text: str,
    key: str,
    why: bytes,
):
    with monkeypatch.context() as environment:
        if key:
            environment.setenv("DEEPSEEK_API_KEY", key)
        server = start_kb("--llm", vendor.config())
    server.call("add", text=text, source="notes")
    added = loom_kb("add", "-", "--kb", "notes", "--llm", vendor.config(), stdin=LAKE.encode())
    assert added.returncode == 1
    assert b"Another process works for this knowledge base, and cannot continue" in added.stderr
    assert why in added.stderr
    assert b"Stored documents stay" in added.stderr
    assert server.close_input() == 0
    assert loom_kb("list", "--kb", "notes").returncode == 0  # nothing is half written


def test_a_wrong_model_is_one_line_of_cause_and_one_of_remedy(loom_kb: Callable[..., Any]):
    for command in (["add", "-"], ["serve"]):
        wrong = loom_kb(*command, "--llm", "no-such-vendor/x", stdin=b"text")
        assert wrong.returncode == 1
        assert len(wrong.stderr.splitlines()) == 2, wrong.stderr
    broken = loom_kb("add", "-", stdin=b"text", env={"LOOM_KB_LLM": '{"api_key": "sk-secret'})
    assert broken.returncode == 1
    assert b"LOOM_KB_LLM" in broken.stderr
    assert b"sk-secret" not in broken.stderr


def test_a_question_about_all_documents_is_answered_topic_by_topic_after_an_estimate(
    loom_kb: Callable[..., Any], vendor: Vendor, tmp_path: Path
):
    (tmp_path / "town.md").write_text(TOWN, encoding="utf-8")
    loom_kb("add", tmp_path / "town.md")
    question = ("overview", "--question", "What are these documents about?")
    refused = loom_kb(*question)
    assert refused.returncode == 1
    assert "There is no language model to answer with." in refused.stderr.decode()
    refused = loom_kb(*question, "--llm", vendor.config())
    assert refused.returncode == 1
    assert "1 passages of 1 documents in 2 requests" in refused.stderr.decode()
    assert vendor.fake.requests == []
    answered = loom_kb(*question, "--llm", vendor.config(), "--yes")
    assert answered.returncode == 0, answered.stderr.decode()
    first, _, cited = answered.stdout.decode().splitlines()
    assert first == "The lake never freezes over [1]."
    assert cited.startswith("[1] town")
    assert len(vendor.fake.requests) == 2
