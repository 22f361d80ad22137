"""Attachments of `agent_run`: they reach no further than the agent's own tools."""

from __future__ import annotations

import base64
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import quote

import pytest

from loom_core.errors import InvalidInputError, LoomError, NetError, ServerError

pytestmark = pytest.mark.slow

_spec = find_spec("importlinter")
assert _spec is not None
assert _spec.origin is not None
PNG = Path(_spec.origin).parent / "ui/static/logo.png"
LISTED_SERVER = Path(__file__).parents[2] / "mcp_client/listed_server.py"
DATA = base64.b64encode(PNG.read_bytes()).decode()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder that agents may read, with a secret in it and a file outside."""
    inside = tmp_path / "公开"
    inside.mkdir()
    (inside / "潮汐.txt").write_bytes("满潮在每天六点。".encode("gb18030"))
    (inside / "secret.txt").write_text("the password")
    (tmp_path / "outside.txt").write_text("not for agents")
    return inside


async def test_bytes_and_files_of_the_folder_are_read_with_the_goal(connect, call, configure, folder: Path):
    configure(default={})
    attachments = [f"data:image/png;name={quote('标志.png')};base64,{DATA}", "潮汐.txt"]
    async with connect(root=folder) as client:
        run = await call(client, "agent_run", goal="讲讲附件", attachments=attachments)
        events = await call(client, "agent_events", run_id=run["run_id"])
        image = await client.read_resource(f"loom://runs/{run['run_id']}/blobs/1")
    assert run["status"] == "completed"
    given = events["events"][0]["payload"]["attachments"]
    assert [(each["name"], each["media_type"]) for each in given] == [
        ("标志.png", "image/png"),
        ("潮汐.txt", "text/plain"),
    ]
    assert image.contents[0].blob == DATA


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ("data:image/png;base64,not base64", "cannot be read: "),
        ("data:,text", "cannot be read: it is not in Base64. Write `data:image/png;base64,…`"),
        ("../outside.txt", "outside"),
        ("/etc/passwd", "outside"),
        ("file:///etc/passwd", "There is no"),
        ("nothing.txt", "There is no"),
        ("", "'' cannot be the path of a file"),
        ("secret.txt", "may not read the attachment 'secret.txt'. Send its content as a `data:` URL"),
        ("https://example.com/a.png", "may not read the attachment 'https://example.com/a.png'"),
    ],
)
async def test_what_the_agent_may_not_read_is_refused(
    connect, configure, folder: Path, given: str, told: str
):
    rule = {"action": "deny", "tool": "read_file", "args": {"path": "**/secret.txt"}}
    configure(default={"permissions": [rule]})
    async with connect(root=folder) as client:
        result = await client.call_tool("agent_run", {"goal": "Read it.", "attachments": [given]})
    assert result.is_error
    assert told in result.content[0].text


async def test_a_resource_of_a_server_is_read_if_the_agent_may(
    running, configure, home: Path, tmp_path: Path
):
    resources = {"docs://潮汐.txt": {"blob": base64.b64encode("满潮在每天六点。".encode("gb18030")).decode()}}
    says = tmp_path / "says.json"
    says.write_text(json.dumps({"tools": [], "resources": resources}), encoding="utf-8")
    entry = {"command": sys.executable, "args": ["-S", str(LISTED_SERVER), str(says)]}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": {"docs": entry}}), encoding="utf-8")
    rule = {"action": "allow", "tool": "docs:read_resource"}
    mcp = {"servers": ["docs"]}
    configure(default={"mcp": mcp, "permissions": [rule]}, careful={"mcp": mcp})
    async with running() as service:
        run = await service.start("Read it.", attachments=["docs:docs://潮汐.txt"], server_seconds=40)
        assert [each.name for each in run.request.attachments] == ["docs://潮汐.txt"]
        with pytest.raises(ServerError, match="docs://7"):
            await service.start("Read it.", attachments=["docs:docs://7"])
        with pytest.raises(
            InvalidInputError, match=r"may not read .* `permissions` to allow `docs:read_resource`"
        ):
            await service.start("Read it.", attachments=["docs:docs://潮汐.txt"], profile="careful")


async def test_a_url_is_no_way_into_this_network(running, configure):
    url, http = "http://127.0.0.1:9/a", {"http": {}}
    rule = {"action": "allow", "tool": "http_get"}
    configure(default={"tools": http, "permissions": [rule]}, careful={"tools": http})
    async with running() as service:
        with pytest.raises(NetError, match=r"127\.0\.0\.1 is not allowed"):
            await service.start("Read it.", attachments=[url])
        with pytest.raises(InvalidInputError, match=r"may not read .* allow `http_get`"):
            await service.start("Read it.", attachments=[url], profile="careful")


async def test_without_a_folder_no_path_is_read(running, configure):
    configure(default={})
    async with running() as service:
        with pytest.raises(LoomError, match=r"may not read the attachment 'agent\.json'"):
            await service.start("Read it.", attachments=["agent.json"])


async def test_compositions_take_no_attachments(running, home: Path):
    profiles = {"team": {"chain": ["writer"]}, "writer": {"model": "mock"}}
    (home / "agent.json").write_text(json.dumps({"profiles": profiles}))
    async with running() as service:
        with pytest.raises(LoomError, match="is a composition, whose members get texts only"):
            await service.start("Read it.", attachments=[f"data:image/png;base64,{DATA}"])
