"""What the servers have promised their clients: servers/*/contract.json."""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

_TOOL = Path(__file__).parents[2] / "tools" / "contract.py"


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(_TOOL))


@pytest.mark.parametrize("server", ["agent", "flow", "kb", "query"])
async def test_the_tools_are_what_was_promised(server, tool):
    changes = tool["compared"](tool["accepted"](server), await tool["CONTRACTS"][server]())
    said = "\n".join(
        [f"The surface of servers/{server} has changed:", *changes, f"To accept it, run: {tool['ACCEPT']}"]
    )
    assert not changes, said


def test_every_server_has_a_contract(tool):
    servers = {path.parent.name for path in _TOOL.parents[1].glob("servers/*/pyproject.toml")}
    assert set(tool["CONTRACTS"]) == servers


@pytest.mark.parametrize("server", ["kb", "query"])
def test_what_was_accepted_has_each_profile_with_and_without_content(server, tool):
    contract = tool["accepted"](server)
    names = {name: [item["name"] for item in found["tools"]] for name, found in contract.items()}
    assert names["full"] == names["full, with content"]
    assert names["chatgpt"] == names["chatgpt, with content"] == ["search", "fetch"]
    without, with_content = (contract[name]["tools"][0] for name in ("full", "full, with content"))
    assert "enum" not in without["inputSchema"]["properties"]["source"]
    assert with_content["inputSchema"]["properties"]["source"]["enum"] == ["知识库"]
    fixed = [tool for tool in contract["full"]["tools"] if tool["name"] not in {"query", "ask"}]
    assert len(fixed) >= 2
    assert all(tool in contract["full, with content"]["tools"] for tool in fixed)


def test_what_the_agents_server_offers_depends_on_nothing(tool):
    contract = tool["accepted"]("agent")
    assert contract.keys() == {"full"}
    assert [item["name"] for item in contract["full"]["prompts"]] == ["run", "status"]


def test_a_surface_that_is_gone_breaks(tool):
    contract = tool["accepted"]("kb")
    assert tool["compared"](contract, {"full": contract["full"]})[0] == "BREAKING: chatgpt: gone"
