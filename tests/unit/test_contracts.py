"""Contracts of the servers with their clients: servers/*/contract.json."""

from __future__ import annotations

import json
import runpy
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

_TOOL = Path(__file__).parents[2] / "tools" / "contract.py"

# The tokens of o200k that each tool costs at every request: its name, description and input schema as JSON
# without spaces; and with its output schema, which some hosts show a model, too. In an empty home.
TOKENS: Mapping[str, Mapping[str, tuple[int, int]]] = {
    "agent": {
        "agent_run": (382, 609),
        "agent_wait": (144, 371),
        "agent_reply": (130, 357),
        "agent_decide": (301, 528),
        "agent_control": (134, 361),
        "agent_runs": (146, 174),
        "agent_events": (126, 240),
        "tool_search": (105, 196),
    },
    "flow": {
        "flow_chat": (232, 480),
        "flow_run": (230, 419),
        "flow_resume": (254, 443),
        "flow_list": (69, 183),
        "flow_explain": (137, 405),
        "flow_status": (166, 400),
    },
    "kb": {
        "query": (378, 484),
        "fetch": (138, 241),
        "sources": (145, 291),
        "add": (258, 384),
        "remove": (150, 237),
        "job": (128, 164),
        "job_cancel": (77, 107),
        "graph": (184, 341),
    },
    "query": {
        "query": (413, 566),
        "fetch": (125, 226),
        "sources": (69, 115),
        "ask": (378, 558),
    },
}
MOST = (5_000, 9_000)
"""Of the four servers together."""


@pytest.fixture(scope="module")
def tool() -> dict[str, Any]:
    return runpy.run_path(str(_TOOL))


@pytest.mark.parametrize("server", ["agent", "flow", "kb", "query"])
async def test_the_tools_are_what_was_promised(server, tool):
    changes = tool["compare"](tool["load_accepted"](server), await tool["CONTRACTS"][server]())
    said = "\n".join(
        [f"The surface of servers/{server} has changed:", *changes, f"To accept it, run: {tool['ACCEPT']}"]
    )
    assert not changes, said


def test_every_server_has_a_contract(tool):
    servers = {path.parent.name for path in _TOOL.parents[1].glob("servers/*/pyproject.toml")}
    assert set(tool["CONTRACTS"]) == servers


@pytest.mark.parametrize("server", ["kb", "query"])
def test_what_was_accepted_has_each_profile_with_and_without_content(server, tool):
    contract = tool["load_accepted"](server)
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
    contract = tool["load_accepted"]("agent")
    assert contract.keys() == {"full"}
    assert [item["name"] for item in contract["full"]["prompts"]] == ["run", "status"]


def test_a_surface_that_is_gone_breaks(tool):
    contract = tool["load_accepted"]("kb")
    assert tool["compare"](contract, {"full": contract["full"]})[0] == "BREAKING: chatgpt: gone"


def _tokens(definition: Mapping[str, Any]) -> tuple[int, int]:
    """Count the tokens of a tool without its output schema, and with it."""
    encoding = pytest.importorskip("bpe_openai").get_encoding("o200k_base")
    shown = {key: definition[key] for key in ("name", "description", "inputSchema", "outputSchema")}
    texts = [json.dumps(shown, ensure_ascii=False, separators=(",", ":"))]
    del shown["outputSchema"]
    texts.append(json.dumps(shown, ensure_ascii=False, separators=(",", ":")))
    with_output, without = (len(encoding.encode(text)) for text in texts)
    return without, with_output


@pytest.mark.parametrize("server", TOKENS)
def test_what_each_tool_costs_is_known(server, tool):
    found = {each["name"]: _tokens(each) for each in tool["load_accepted"](server)["full"]["tools"]}
    assert found == TOKENS[server], f"If this is meant, put it into TOKENS: {found}"


def test_the_tools_of_all_servers_cost_no_more_than_was_decided(tool):
    assert TOKENS.keys() == tool["CONTRACTS"].keys()
    without, with_output = zip(*(cost for tools in TOKENS.values() for cost in tools.values()), strict=True)
    assert (sum(without) <= MOST[0], sum(with_output) <= MOST[1]) == (True, True)
