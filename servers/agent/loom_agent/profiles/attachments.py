"""Attachments of callers: they reach no further than the agent's own tools.

These are `read_file`, `http_get`, and `read_resource` of its MCP servers.
"""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any

from anyio import to_thread

from loom_core.agent.attachments import MAX_FILE_BYTES, fetch_attachment, is_data_url, is_web_url
from loom_core.errors import InvalidInputError, NotFoundError, SourceError
from loom_core.runs.run import Attachment
from loom_core.tools.builtin.file_root import FileRoot

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from loom_agent.profiles.agents import ProfileAgent
    from loom_core.mcp_client.remote_tools import RemoteTools

__all__ = ["read_attachment"]


async def read_attachment(
    given: str, made: ProfileAgent, *, mcp: RemoteTools, folder: Path | None, caller: str
) -> Attachment | str:
    """Return an attachment with its bytes; a `data:` URL as it is.

    Args:
        given: a `data:` URL, the http(s) URL of a file, `server:URI` for a resource of one of the agent's MCP
            servers, or a path in the folder.
        made: the agent that gets it.
        mcp: the MCP servers.
        folder: the folder of its file tools; None if it has none.
        caller: id of the caller.

    Raises:
        InvalidInputError: the agent itself may not read it.
        NotFoundError: there is no such file.
        NetError: the URL is not allowed, or cannot be fetched.
        ServerError: the MCP server does not give the resource.
        SourceError: the resource is empty, or has several parts.
    """
    if is_data_url(given):
        return given
    if is_web_url(given):
        http = made.profile.tools.http
        if http is None or _action(made, "http_get", {"url": given}, caller) != "allow":
            advice = 'A profile with `"tools": {"http": {}}` may fetch it if `permissions` allow `http_get`.'
            raise _refusal(given, advice)
        return await fetch_attachment(given, policy=http.access().policy())
    server, separator, uri = given.partition(":")
    if separator and server in made.servers:
        if _action(made, f"{server}:read_resource", {"uri": uri}, caller) != "allow":
            raise _refusal(
                given, f"The server has to be ready, and `permissions` to allow `{server}:read_resource`."
            )
        return await _read_resource(mcp, server, uri)
    if folder is None or _action(made, "read_file", {"path": given}, caller) != "allow":
        raise _refusal(given, "`tools.files` and `permissions` of a profile say what it may read.")
    root = FileRoot(folder)
    data, _ = await to_thread.run_sync(lambda: root.read(given, most=MAX_FILE_BYTES))
    return Attachment(data, PurePath(given).name)


async def _read_resource(mcp: RemoteTools, server: str, uri: str) -> Attachment:
    contents = await mcp.read_resource(server, uri)
    if len(contents) != 1:
        raise SourceError(
            f"The resource {uri[:200]} of {server} has {len(contents)} parts, and an attachment is one file.",
            advice="Attach the resource of a single file.",
        )
    return Attachment(contents[0].data, contents[0].name, contents[0].media_type)


def _action(made: ProfileAgent, tool: str, arguments: Mapping[str, Any], caller: str) -> str:
    """Return what the permissions of the agent say about a call."""
    try:
        return made.permissions.decide(made.toolbox.find(tool), arguments, source=caller).action
    except NotFoundError:
        return "deny"


def _refusal(which: str, advice: str) -> InvalidInputError:
    return InvalidInputError(
        f"The agent may not read the attachment {which[:200]!r}.",
        advice=f"Send its content as a `data:` URL. {advice}",
    )
