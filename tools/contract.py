"""Accept the servers' current contract: write servers/*/contract.json and report the changes.

    python -m tools.contract

A contract has every surface of a server: of each profile without content and with some, where descriptions
and arguments depend on it. Of a surface with content only the definitions that differ are written. A test
compares the files with the servers, so that no change goes unseen, breaking or not.
"""

from __future__ import annotations

import asyncio
import json
import tempfile
from collections.abc import Callable, Coroutine, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from loom_agent.app import build as build_agent
from loom_agent.settings import Settings as AgentSettings
from loom_flow.app import build as build_flow
from loom_flow.settings import Settings as FlowSettings
from loom_kb.app import build as build_kb
from loom_kb.settings import Settings as KbSettings
from loom_query.app import build as build_query
from loom_query.settings import Settings as QuerySettings
from mcp import Client

from tools.surface_changes import Surface, changes

if TYPE_CHECKING:
    from mcp_types import Prompt, ResourceTemplate, Tool

Contract = Mapping[str, Surface]
"""The surfaces of a server by name."""

ACCEPT = "python -m tools.contract"

_Profile = Literal["full", "chatgpt"]

_PROFILES: tuple[_Profile, ...] = ("full", "chatgpt")
_SERVERS = Path(__file__).parents[1] / "servers"
_WITH_CONTENT = ", with content"
WITH_OPTIONS = "full, with --root /notes and --allow-urls"
"""The surface of loom-kb in which `add` takes all that it can."""

_NOTE = {
    "title": "青岛港",
    "text": "# 青岛港\n\n青岛港的港长是李明。",
    "source": "知识库",
    "tags": ["harbour"],
    "description": "港口 and ships.",
}


def main() -> None:
    for server, found in CONTRACTS.items():
        old, new = load_accepted(server), asyncio.run(found())
        for change in compare(old, new):
            print(f"{server}: {change}")
        _file(server).write_text(_serialize(new), encoding="utf-8")


async def loom_kb() -> Contract:
    """Return the current contract of loom-kb."""
    contract = dict(await _surfaces(_kb))
    with tempfile.TemporaryDirectory() as home:
        settings = KbSettings(Path(home), roots=(Path("/notes"),), allow_urls=True, embedder="hashing")
        async with Client(build_kb(settings).protocol) as client:
            return {**contract, WITH_OPTIONS: await surface(client)}


async def loom_query() -> Contract:
    """Return the current contract of loom-query-server."""

    def server(home: Path, profile: _Profile) -> Client:
        return Client(build_query(QuerySettings(home, home / "query.json", profile=profile)).protocol)

    return await _surfaces(server)


async def loom_agent() -> Contract:
    """Return the current contract of loom-agent-server, which is the same for any configuration."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with Client(build_agent(AgentSettings(home, home / "agent.json")).protocol) as client:
            return {"full": await surface(client)}


async def loom_flow() -> Contract:
    """Return the current contract of loom-flow-server, without flows that are tools of their own."""
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        async with Client(build_flow(FlowSettings(home, home / "flow.json")).protocol) as client:
            return {"full": await surface(client)}


CONTRACTS: Mapping[str, Callable[[], Coroutine[None, None, Contract]]] = {
    "agent": loom_agent,
    "flow": loom_flow,
    "kb": loom_kb,
    "query": loom_query,
}
"""How to find what the server in each folder of `servers/` promises."""


def _kb(home: Path, profile: _Profile) -> Client:
    return Client(build_kb(KbSettings(home, embedder="hashing", profile=profile)).protocol)


async def _surfaces(server: Callable[[Path, _Profile], Client]) -> Contract:
    """Collect the surfaces of a server: each profile, in an empty home and in one with a knowledge base."""
    contract: dict[str, Surface] = {}
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        for content in ("", _WITH_CONTENT):
            if content:
                async with _kb(home, "full") as client:
                    added = await client.call_tool("add", _NOTE)
                    assert not added.is_error, added.content
            for profile in _PROFILES:
                async with server(home, profile) as client:
                    contract[profile + content] = await surface(client)
    return contract


def answer_schemas(server: str, profile: _Profile = "full") -> Mapping[str, Mapping[str, Any]]:
    """Return the schemas of what the tools of the server in this folder answer, with descriptions, by tool.

    What is sent, and so accepted, is the outline of each.
    """
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        match server:
            case "agent":
                built = build_agent(AgentSettings(home, home / "agent.json"))
            case "flow":
                built = build_flow(FlowSettings(home, home / "flow.json"))
            case "query":
                built = build_query(QuerySettings(home, home / "query.json", profile=profile))
            case _:
                built = build_kb(KbSettings(home, embedder="hashing", profile=profile))
        return built.answer_schemas()


async def surface(client: Client) -> Surface:
    """Return a server's surface as a client sees it."""
    found: dict[str, list[dict[str, Any]]] = {
        "tools": [_dump(tool) for tool in (await client.list_tools()).tools],
        "prompts": [_dump(prompt) for prompt in (await client.list_prompts()).prompts],
    }
    if client.server_capabilities.resources:
        templates = (await client.list_resource_templates()).resource_templates
        found["resourceTemplates"] = [_dump(template) for template in templates]
    return found


def load_accepted(server: str) -> Contract:
    """Return the accepted contract of the server in this folder."""
    if not _file(server).exists():
        return {}
    contract: dict[str, dict[str, Any]] = json.loads(_file(server).read_text(encoding="utf-8"))
    for name in contract:
        if name != _base(name):
            base = contract[_base(name)]
            other = contract[name]
            contract[name] = {
                kind: [other.get(kind, {}).get(item["name"], item) for item in base[kind]] for kind in base
            }
    return contract


def _base(name: str) -> str:
    """Return the name of the surface that another is written as a difference from."""
    return name.partition(", ")[0]


def compare(old: Contract, new: Contract) -> list[str]:
    """Describe each change of each surface in a line, the breaking ones of a surface first."""
    lines = [f"BREAKING: {name}: gone" for name in old if name not in new]
    return lines + [f"{change} ({name})" for name in new for change in changes(old.get(name, {}), new[name])]


def _serialize(contract: Contract) -> str:
    written: dict[str, Any] = {}
    for name, found in contract.items():
        base = contract[_base(name)]
        if base is found:
            written[name] = found
            continue
        assert found.keys() == base.keys()
        written[name] = {
            kind: {
                item["name"]: item for was, item in zip(base[kind], found[kind], strict=True) if item != was
            }
            for kind in found
        }
    return json.dumps(written, ensure_ascii=False, indent=2) + "\n"


def _dump(definition: Tool | Prompt | ResourceTemplate) -> dict[str, Any]:
    return definition.model_dump(mode="json", by_alias=True, exclude_unset=True)


def _file(server: str) -> Path:
    return _SERVERS / server / "contract.json"


if __name__ == "__main__":
    main()
