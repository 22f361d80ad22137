"""Other MCP servers as sources: started when a question comes, by name or by an entry of their own."""

from __future__ import annotations

import json
import re
import socket
import sys
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from loom_query.service import QueryService

from loom_core.errors import LoomError, SourceStartingError

pytestmark = pytest.mark.slow


@pytest.fixture
def notes(tmp_path):
    """An entry that starts a query server with a source of its own."""
    other = tmp_path / "other"
    other.mkdir()
    documents = [{"text": "# Port Aster\n\nThe harbour master is Ada Brown.", "uri": "note:aster"}]
    content = {"sources": {"inner": {"kind": "documents", "documents": documents}}}
    (other / "query.json").write_text(json.dumps(content), encoding="utf-8")
    return {"command": sys.executable, "args": ["-m", "loom_query", "--home", str(other)]}


class Gate:
    """A gate that holds a server back: it starts to speak once the gate is open.

    Attributes:
        entry: starts a query server with a source of its own, behind the gate.
    """

    def __init__(self, entry: dict[str, Any]) -> None:
        self._socket = socket.create_server(("127.0.0.1", 0))
        port = self._socket.getsockname()[1]
        wait = f"import socket, sys; socket.create_connection(('127.0.0.1', {port})).recv(1)"
        run = "import runpy; sys.argv[0] = 'loom_query'; runpy.run_module('loom_query', run_name='__main__')"
        self.entry = {**entry, "args": ["-c", f"{wait}; {run}", *entry["args"][2:]]}
        self._held: list[socket.socket] = []

    async def reached(self) -> None:
        """Wait until a server stands at the gate."""
        self._socket.settimeout(20)
        self._held.append((await anyio.to_thread.run_sync(self._socket.accept))[0])

    def open(self) -> None:
        """Let the servers that stand there go on."""
        for each in self._held:
            each.close()

    def close(self) -> None:
        self.open()
        self._socket.close()


@pytest.fixture
def gate(notes):
    gate = Gate(notes)
    yield gate
    gate.close()


@pytest.fixture
async def lasting(settings):
    """Opens a service as a server does."""

    @asynccontextmanager
    async def run():
        service = QueryService(settings())
        service.sources.load()
        async with service:
            yield service

    return run


@pytest.mark.slow
async def test_a_server_is_connected_at_its_first_question_and_closed_when_it_is_no_longer_a_source(
    configure, running, notes, harbour, home
):
    configure({"near": harbour, "far": {"kind": "mcp", "server": "notes", "description": "远方"}})
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": notes}}), encoding="utf-8")
    async with running() as service:
        assert [(each.name, each.kind, each.state) for each in (await service.list_sources()).sources] == [
            ("near", "documents", "ready"),
            ("far", "mcp", "idle"),
        ]
        result = await service.query("Who is the harbour master?", sources=["far"])
        assert service.sources.live["far"].state == "ready"
        best = result.passages[0]
        assert best.id.startswith("far:inner:")
        assert (best.title, best.uri) == ("Port Aster", "note:aster")
        whole = await service.fetch(best.id, start=None, tokens=500)
        assert "Ada Brown" in whole.text
        assert whole.uri == "note:aster"
        far = service.sources.live["far"]
        configure({"near": harbour})
        await service.sources.refresh()
        assert list(service.sources.live) == ["near"]
        assert far.state == "failed", "it is closed"


async def test_a_server_that_cannot_be_started_says_why_and_spoils_nothing(configure, running, harbour):
    configure({"near": harbour, "far": {"kind": "mcp", "server": {"command": "loom-no-such-program"}}})
    async with running() as service:
        result = await service.query("Who is the harbour master?")
        assert "Ada Brown" in result.passages[0].text
        assert result.notes[0] == "1 of 2 sources answered."
        assert "loom-no-such-program" in result.notes[1]
        with pytest.raises(LoomError, match="loom-no-such-program"):
            await service.fetch("far:x", start=None, tokens=100)
        assert service.sources.live["far"].state == "failed"


async def test_a_program_whose_link_leads_nowhere_does_not_end_the_other_sources(
    configure, running, harbour, tmp_path
):
    link = tmp_path / "loop"
    link.symlink_to(link)
    configure({"near": harbour, "far": {"kind": "mcp", "server": {"command": str(link)}}})
    async with running() as service:
        result = await service.query("Who is the harbour master?")
        assert "Ada Brown" in result.passages[0].text
        assert "there is no program" in result.notes[1]


@pytest.mark.parametrize("folder", ["~no-such-user/loom", "长" * 300])
async def test_a_change_to_a_folder_that_cannot_be_looked_at_costs_its_source_only(
    configure, running, harbour, folder
):
    configure({"near": harbour})
    async with running() as service:
        configure({"near": harbour, "far": {"kind": "local", "home": folder}})
        await service.sources.refresh()
        assert list(service.sources.live) == ["near"]
        assert folder in service.sources.problems[0].message
        await service.sources.refresh()


async def test_a_server_that_is_not_in_mcp_json_is_told_with_what_to_do(configure, running):
    path = configure({"far": {"kind": "mcp", "server": "tracker"}})
    async with running() as service:
        (far,) = (await service.list_sources()).sources
        assert f"{path}:" in far.problem
        assert "'tracker'" in far.problem


@pytest.mark.slow
async def test_a_source_that_is_still_starting_is_named_and_has_not_failed(configure, lasting, harbour, gate):
    configure({"near": harbour, "远方": {"kind": "mcp", "server": gate.entry, "deadline": 0.3}})
    async with lasting() as service:
        result = await service.query("Who is the harbour master?")
        assert "Ada Brown" in result.passages[0].text
        assert {each.source: each.state for each in result.sources} == {
            "near": "answered",
            "远方": "starting",
        }
        assert result.notes[0] == "1 of 2 sources answered."
        assert re.fullmatch(
            r"远方: Server '远方' is still starting \(\d+ s so far\)\. Ask again in a moment\.",
            result.notes[1],
        )
        far = service.sources.live["远方"]
        assert (far.state, far.problem) == ("connecting", "")
        with pytest.raises(SourceStartingError):
            await service.query("Who is the harbour master?", sources=["远方"])
        with pytest.raises(SourceStartingError):
            await service.fetch("远方:x", start=None, tokens=100)
        await gate.reached()
        gate.open()
        with anyio.fail_after(20):
            await far.connect()
        assert (far.state, far.problem) == ("ready", "")


@pytest.mark.slow
async def test_the_time_for_an_answer_begins_when_the_server_has_started(configure, lasting, gate):
    configure({"far": {"kind": "mcp", "server": gate.entry}})
    async with lasting() as service, anyio.create_task_group() as tasks:
        answers = []

        async def ask():
            answers.append(await service.query("Who is the harbour master?"))

        tasks.start_soon(ask)
        await gate.reached()
        gate.open()
    (result,) = answers
    assert [each.state for each in result.sources] == ["answered"]
    assert "Ada Brown" in result.passages[0].text


async def test_the_first_question_starts_all_servers_also_those_that_it_is_not_for(
    configure, lasting, harbour, gate
):
    far = {"kind": "mcp", "server": gate.entry}
    configure({"near": harbour, "far": far})
    async with lasting() as service:
        assert service.sources.live["far"].state == "idle"
        await service.query("Who is the harbour master?", sources=["near"])
        await gate.reached()
        assert service.sources.live["far"].state == "connecting"
        configure({"near": harbour, "far": far, "further": far})
        await service.sources.refresh()
        await gate.reached()
        assert service.sources.live["further"].state == "connecting"


@pytest.mark.slow
async def test_a_command_waits_for_a_server_as_long_as_it_may_take_to_start(configure, running, gate):
    configure({"far": {"kind": "mcp", "server": gate.entry, "deadline": 40}}, deadline=0.1)
    async with running() as service, anyio.create_task_group() as tasks:
        answers = []

        async def ask():
            answers.append(await service.query("Who is the harbour master?"))

        tasks.start_soon(ask)
        await gate.reached()
        gate.open()
    assert [each.state for each in answers[0].sources] == ["answered"]
