"""The client that the official conformance suite drives: Loom's own adapter, and nothing else of a client.

    client.py              serve: the first line that it writes is the port
    client.py PORT URL     what the suite starts for each scenario: has it done by the one that serves

The suite starts all its scenarios at once; one process that does them side by side needs a tenth of the time
that it would take to start Python with the SDK so often. What is done is the same in all of them: whatever a
host does with a server that it does not know.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import traceback
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import mcp_types
    from anyio.abc import SocketStream

    from loom_core.mcp_client.callbacks import SamplingRequest, SamplingResult
    from loom_core.mcp_client.configuration.oauth_config import OAuthConfig
    from loom_core.mcp_client.connections.connection import ServerConnection
    from loom_core.tools.interface import Question, QuestionAnswer

_HERE = "http://localhost:7071/callback"
_DOCUMENT = "https://conformance-test.local/client-metadata.json"  # the suite's name for the client
_SECONDS = 20.0
_AT_ONCE = 4  # of the suite's scenarios; it starts them all together, and then no answer would come in time
_RICH = "json_schema_2020_12_tool"
_PLAIN: Mapping[str, Any] = {
    "string": "茶",
    "integer": 2,
    "number": 2.5,
    "boolean": True,
    "array": [],
    "object": {},
}


def relay(port: int, url: str) -> int:
    """Have a scenario done; gives the exit code."""
    scenario = {
        "url": url,
        "version": os.environ["MCP_CONFORMANCE_PROTOCOL_VERSION"],
        "context": json.loads(os.environ.get("MCP_CONFORMANCE_CONTEXT", "{}")),
    }
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rw") as stream:
        stream.write(json.dumps(scenario) + "\n")
        stream.flush()
        problem: str = json.loads(stream.readline())
    sys.stderr.write(problem)
    return 1 if problem else 0


async def serve() -> None:
    """Do the scenarios that come, side by side."""
    import anyio
    from anyio.abc import SocketAttribute

    # What is loaded at first use otherwise, while the SDK waits 10 s for its first answer from each server.
    from loom_core.net import system_trust

    async def answer(stream: SocketStream) -> None:
        async with stream:
            scenario = json.loads(await stream.receive(1 << 20))
            try:
                async with turns:
                    with anyio.fail_after(3 * _SECONDS):
                        await play(scenario["url"], scenario["version"], scenario["context"])
                problem = ""
            except Exception:  # noqa: BLE001 - the end of this scenario, and of no other
                problem = traceback.format_exc()
            await stream.send(json.dumps(problem).encode() + b"\n")

    system_trust()
    turns = anyio.CapacityLimiter(_AT_ONCE)
    listener = await anyio.create_tcp_listener(local_host="127.0.0.1", local_port=0)
    sys.stdout.write(f"{listener.extra(SocketAttribute.local_port)}\n")
    sys.stdout.flush()
    await listener.serve(answer)


async def play(url: str, version: str, context: Mapping[str, Any]) -> None:
    """Connect to a server, log in where it wants that, and use all that it offers."""
    import anyio

    from loom_core.mcp_client.callbacks import Callbacks
    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_core.mcp_client.connections.connection import ServerConnection
    from loom_core.mcp_client.oauth.authentication import oauth_auth

    with TemporaryDirectory() as home:
        config = ServerConfig(
            name="suite",
            transport="http",
            url=url,
            auth="oauth",
            oauth=await _oauth(url, context),
            era="legacy" if version <= "2025-11-25" else "auto",
            start_seconds=_SECONDS,
            call_seconds=_SECONDS,
            sampling=True,
            roots=(Path(home),),
        )
        auth = oauth_auth(config, Path(home), browser=_Browser(), keyring=False)
        connection = ServerConnection(
            config, callbacks=Callbacks(ask=_agree, sample=_sample), auth=lambda _: auth
        )
        async with anyio.create_task_group() as owner:
            owner.start_soon(connection.run)
            try:
                await connection.ready(_SECONDS)
                await _use(connection, context)
            finally:
                await connection.close()


async def _use(connection: ServerConnection, context: Mapping[str, Any]) -> None:
    tools = {tool.name: tool for tool in (await connection.list_tools()).tools}
    calls = context.get("toolCalls") or [
        {"name": name, "arguments": _arguments(tool, tools)} for name, tool in tools.items()
    ]
    for call in calls:
        await connection.call_tool(call["name"], call["arguments"])
    assert connection.facts is not None
    if connection.facts.capabilities.resources is not None:
        for resource in await connection.list_resources():
            await connection.read_resource(str(resource.uri))
    if connection.facts.capabilities.prompts is not None:
        for prompt in await connection.list_prompts():
            required = {argument.name: "茶" for argument in prompt.arguments or [] if argument.required}
            await connection.get_prompt(prompt.name, required)


def _arguments(tool: mcp_types.Tool, tools: Mapping[str, mcp_types.Tool]) -> dict[str, Any]:
    """Something for each argument that a tool requires; `schema` is the one that the suite wants back."""
    found = {
        name: _PLAIN[tool.input_schema["properties"][name].get("type", "string")]
        for name in tool.input_schema.get("required", ())
    }
    return {**found, "schema": tools[_RICH].input_schema} if "schema" in found else found


async def _oauth(url: str, context: Mapping[str, Any]) -> OAuthConfig:
    """How to log in: what the suite tells about the client is what a user would have been told."""
    from loom_core.mcp_client.configuration.oauth_config import OAuthConfig

    if "client_id" not in context:
        return OAuthConfig(client_metadata_url=_DOCUMENT)
    credentials = {
        "client_id": context["client_id"],
        "client_secret": context.get("client_secret"),
        "private_key": context.get("private_key_pem"),
        "algorithm": context.get("signing_algorithm", "RS256"),
    }
    if "issuer" in context:
        return OAuthConfig(**credentials, issuer=context["issuer"])
    return OAuthConfig(**credentials, grant="client_credentials", issuer=await _issuer(url))


async def _issuer(url: str) -> str:
    """The authorization server, which a user would know; the suite has it in the server's metadata only."""
    import httpx2

    place = httpx2.URL(url)
    async with httpx2.AsyncClient(verify=False) as client:
        found = await client.get(place.copy_with(path=f"/.well-known/oauth-protected-resource{place.path}"))
    return found.json()["authorization_servers"][0]


class _Browser:
    """Somebody who agrees to every page that is shown."""

    redirect_uri = _HERE
    _page = ""

    async def visit(self, url: str) -> None:
        self._page = url

    async def answer(self) -> Mapping[str, str]:
        import httpx2

        async with httpx2.AsyncClient(verify=False) as client:
            found = await client.get(self._page)
        return dict(httpx2.URL(found.headers["location"]).params)


async def _agree(question: Question) -> QuestionAnswer:
    """What a form holds before anything is changed; yes where it holds nothing."""
    from loom_core.tools.interface import QuestionAnswer

    fields: Mapping[str, Any] = question.schema.get("properties", {})
    return QuestionAnswer(
        "accept", {name: field.get("default", _PLAIN[field["type"]]) for name, field in fields.items()}
    )


async def _sample(request: SamplingRequest) -> SamplingResult:
    from loom_core.mcp_client.callbacks import SamplingResult

    return SamplingResult(f"{len(request.turns)} turns", "mock")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        sys.exit(relay(int(sys.argv[1]), sys.argv[2]))
    import anyio

    anyio.run(serve)
