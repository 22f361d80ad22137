"""Other MCP servers as sources: connected at the first question, by name or by an entry of their own."""

from __future__ import annotations

import json
import sys

import pytest

from loom_core.errors import LoomError


@pytest.fixture
def notes(tmp_path):
    """An entry that starts a query server with a source of its own."""
    other = tmp_path / "other"
    other.mkdir()
    documents = [{"text": "# Port Aster\n\nThe harbour master is Ada Brown.", "uri": "note:aster"}]
    content = {"sources": {"inner": {"kind": "documents", "documents": documents}}}
    (other / "query.json").write_text(json.dumps(content), encoding="utf-8")
    return {"command": sys.executable, "args": ["-m", "loom_query", "--home", str(other)]}


@pytest.mark.slow
async def test_a_server_is_connected_at_its_first_question_and_closed_when_it_is_no_longer_a_source(
    configure, running, notes, harbour, home
):
    configure({"near": harbour, "far": {"kind": "mcp", "server": "notes", "description": "远方"}})
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"notes": notes}}), encoding="utf-8")
    async with running() as service:
        assert [(each.name, each.kind, each.state) for each in service.listed().sources] == [
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


async def test_a_server_that_is_not_in_mcp_json_is_told_with_what_to_do(configure, running):
    path = configure({"far": {"kind": "mcp", "server": "tracker"}})
    async with running() as service:
        (far,) = service.listed().sources
        assert f"{path}:" in far.problem
        assert "'tracker'" in far.problem
