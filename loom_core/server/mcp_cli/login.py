"""The verbs `mcp login` and `mcp logout`: a user's OAuth login at a server, for all of Loom."""

from __future__ import annotations

import webbrowser
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import anyio

from loom_core.errors import ConfigError, InvalidInputError, LoomError, NotFoundError
from loom_core.mcp_client.configuration.command_names import verb
from loom_core.mcp_client.configuration.servers import read_servers
from loom_core.mcp_client.oauth.store import LoginStore
from loom_core.server.mcp_cli.entries import McpReport

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable
    from pathlib import Path

    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_core.mcp_client.oauth.authentication import OAuth

__all__ = ["log_in", "log_out"]

_SECONDS = 300.0  # for the person
_LOCK_SECONDS = 10.0


def log_in(
    args: argparse.Namespace, *, home: Path, project: Path | None, show: Callable[[str], None]
) -> McpReport:
    """Log in at a server, and test the login. Blocks until the person has done so.

    Args:
        args: options of the verb `login`, see `standard_commands.add_mcp_options`.
        home: Loom's folder.
        project: the project's `.mcp.json`, or None.
        show: shows a text to the person, at once.

    Raises:
        NotFoundError: there is no such server.
        ConfigError: its entry cannot be used, or the port of the redirect is taken.
        InvalidInputError: its entry is configured without OAuth.
        LoginError: the user has not logged in, or the login was refused.
        ServerError: the server cannot be reached, or does not speak MCP.
    """
    config = _config(args.name, home, project)

    def visit(url: str) -> None:
        show(f"Log in at {urlsplit(url).hostname} for {config.name!r}: {url}")
        if not args.no_browser:
            webbrowser.open(url)

    return anyio.run(_log_in, config, home, visit)


def log_out(args: argparse.Namespace, *, home: Path, project: Path | None) -> McpReport:
    """Delete the stored login at a server: its tokens and the client's registration.

    Raises:
        NotFoundError: there is no such server.
        ConfigError: its entry cannot be used, or the file of its login cannot be removed.
        InvalidInputError: it is configured without OAuth.
        StoreBusyError: another process is renewing the login.
    """
    config = _config(args.name, home, project)
    store = LoginStore(home, config.name, config.url)

    async def forget() -> bool:
        async with store.exclusive(_LOCK_SECONDS):
            return store.forget()

    known = anyio.run(forget)
    line = (
        f"The login at {config.name!r} is forgotten on this machine."
        if known
        else f"There was no login at {config.name!r}."
    )
    notes = ["Tokens that the server issued may stay valid there until they expire."] if known else []
    return McpReport([line], notes, {"name": config.name, "forgotten": known})


def _config(name: str, home: Path, project: Path | None) -> ServerConfig:
    servers = read_servers(home, project=project, names=[name])
    if name in servers.problems:
        problem = servers.problems[name]
        kind = ConfigError if problem.where else NotFoundError
        raise kind(problem.placed, advice=problem.advice)
    if not servers.ready:
        raise NotFoundError(
            f"There is no server {name!r}.", advice=f"{verb('list')} shows the servers there are."
        )
    config = servers.ready[0]
    if config.auth != "oauth":
        raise InvalidInputError(
            f"{name!r} takes no login: its entry does not mention OAuth.",
            advice='If it wants that, write "loom": {"auth": "oauth"} into the entry.',
        )
    return config


async def _log_in(config: ServerConfig, home: Path, visit: Callable[[str], None]) -> McpReport:
    from loom_core.mcp_client.oauth.authentication import oauth_auth
    from loom_core.mcp_client.oauth.browser import LoopbackBrowser

    shown: list[str] = []

    def note(url: str) -> None:
        shown.append(url)
        visit(url)

    port = await _port(config, home)
    async with LoopbackBrowser(note, port=port, seconds=_SECONDS) as browser:
        auth = oauth_auth(config, home, browser=browser)
        assert auth is not None  # `_config` has checked it
        tools = await _tools(config, auth)
    login = LoginStore(home, config.name, config.url).read()
    scope = login.tokens.scope if login.tokens else ""
    if shown:
        line = f"Logged in at {config.name!r}, which has {tools} tools."
    else:
        line = f"{config.name!r} needs no login, and has {tools} tools: there was nothing to log in at."
    notes = [f"Scope: {scope}"] if shown and scope else []
    return McpReport(
        [line], notes, {"name": config.name, "asked": bool(shown), "scope": scope, "tools": tools}
    )


async def _tools(config: ServerConfig, auth: OAuth) -> int:
    """Return how many tools the server lists after the login."""
    from loom_core.mcp_client.connections.connection import ServerConnection

    patient = config.model_copy(update={"start_seconds": 2 * _SECONDS, "call_seconds": 2 * _SECONDS})
    connection = ServerConnection(patient, auth=lambda _: auth)
    found: int | LoomError = 0
    async with anyio.create_task_group() as owner:
        owner.start_soon(connection.run)
        try:
            await connection.ready(2 * _SECONDS)
            found = len((await connection.list_tools()).tools)
        except LoomError as error:
            found = auth.problem or error
        finally:
            await connection.close()
    if isinstance(found, LoomError):
        raise found
    return found


async def _port(config: ServerConfig, home: Path) -> int:
    """Return the redirect port; the same as before, so that the client need not be registered again."""
    from loom_core.mcp_client.oauth.browser import LoopbackBrowser

    if config.oauth is not None and config.oauth.redirect_port:
        return config.oauth.redirect_port
    try:
        registration = LoginStore(home, config.name, config.url).read().registration
        port = urlsplit(registration.redirect_uri).port if registration else None
        async with LoopbackBrowser(lambda _: None, port=port or 0):
            return port or 0
    except ConfigError:  # the login cannot be read, or something else has the port by now
        return 0
