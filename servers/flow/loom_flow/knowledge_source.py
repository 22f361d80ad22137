"""Sources for a flow file's `knowledge`, which are queried with every message."""

from __future__ import annotations

import os
from contextlib import closing
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.errors import ConfigError
from loom_core.flow.config.models import DocumentsSource, HttpSource, LocalSource, McpSource
from loom_core.installation import how_to_install

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from anyio.abc import TaskGroup

    from loom_core.flow.config import KnowledgeSource
    from loom_core.flow.knowledge import ProviderKnowledge
    from loom_core.knowledge.interface import KnowledgeBaseProvider
    from loom_core.knowledge.sources.library import Library
    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_flow.settings import Settings

__all__ = ["KnowledgeSources"]

_NAME = "knowledge"
_NEEDED = ("chromadb", "numpy", "onnxruntime", "tantivy")  # of the extra `kb`; checked without an import


class KnowledgeSources:
    """Factory of knowledge sources; each is built once and closed at the end.

    Args:
        settings: settings of the process.
        tasks: task group for connections and models; the caller ends it.
    """

    def __init__(self, settings: Settings, tasks: TaskGroup) -> None:
        self._settings = settings
        self._tasks = tasks
        self._libraries: dict[Path, Library] = {}
        self._closing: list[Callable[[], Awaitable[None]]] = []
        self._made: list[tuple[KnowledgeSource, ProviderKnowledge]] = []

    async def of(self, config: KnowledgeSource | None) -> ProviderKnowledge | None:
        """Return the source; None if the file names none.

        Raises:
            ConfigError: it is not usable: it does not exist, or a required package is not installed.
        """
        if config is None:
            return None
        for known, source in self._made:
            if known == config:
                return source
        source = await self._source(config)
        self._made.append((config, source))
        return source

    async def _source(self, config: KnowledgeSource) -> ProviderKnowledge:
        from loom_core.flow.knowledge import ProviderKnowledge

        provider: KnowledgeBaseProvider
        match config:
            case LocalSource():
                provider = await to_thread.run_sync(self._local, config)
            case HttpSource():
                from loom_core.knowledge.sources.remote.http import HTTPKnowledgeBase

                provider = HTTPKnowledgeBase(config, name=_NAME)
            case McpSource():
                from loom_core.knowledge.sources.remote.mcp import MCPKnowledgeBase
                from loom_core.mcp_client.connections.connection import ServerConnection
                from loom_core.mcp_client.oauth.authentication import oauth_auth

                server = await to_thread.run_sync(self._server, config)
                connection = ServerConnection(server, auth=partial(oauth_auth, home=self._settings.home))
                self._tasks.start_soon(connection.run)
                self._closing.append(connection.close)
                provider = MCPKnowledgeBase(connection, config, name=_NAME)
            case DocumentsSource():
                _check_installed()
                from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase

                provider = DocumentsKnowledgeBase(config.documents, name=_NAME)
                self._closing.append(_closer(provider.close))
        return ProviderKnowledge(provider)

    async def close(self) -> None:
        """Close everything that was opened."""
        for close in self._closing:
            await close()

    def _local(self, config: LocalSource) -> KnowledgeBaseProvider:
        from loom_core.knowledge.sources.catalogue import Catalogue

        home = self._settings.home
        if config.home:
            home = self._settings.config.parent / Path(config.home).expanduser()
        database = self._settings.database if home == self._settings.home else ""
        with closing(Catalogue(home, database=database)) as catalogue:
            entries = {entry.name: entry for entry in catalogue.list()}
        entry = entries.get(config.knowledge_base)
        if entry is None:
            known = (
                f"There are: {', '.join(entries)}." if entries else "There is none: create it with loom-kb."
            )
            raise ConfigError(
                f"There is no knowledge base {config.knowledge_base!r} in {home}.", advice=known
            )
        if entry.problem:
            raise ConfigError(
                f"The knowledge base {config.knowledge_base!r} is not usable: {entry.problem}.",
                advice=f"loom-kb check --kb {config.knowledge_base} says what can be done.",
            )
        _check_installed()
        import_module("loom_core.knowledge.rag.knowledge_base")  # it takes a second
        from loom_core.knowledge.sources.library import Library
        from loom_core.knowledge.sources.local import LocalKnowledgeBase

        if home not in self._libraries:
            library = self._libraries[home] = Library(home, database=database, program="loom-flow-server")
            library.work_in(self._tasks)
            self._closing.append(_closer(library.close))
        return LocalKnowledgeBase(self._libraries[home], entry.source, base=entry.name)

    def _server(self, config: McpSource) -> ServerConfig:
        """Return the server, from `mcp.json` or from the file itself."""
        from loom_core.mcp_client.configuration.expansion import Expansion
        from loom_core.mcp_client.configuration.server_config import ServerConfig
        from loom_core.mcp_client.configuration.servers import read_servers

        home, written = self._settings.home, config.server
        if isinstance(written, dict):
            folder = self._settings.config.parent
            server = ServerConfig.of_entry(_NAME, written, expansion=Expansion(os.environ), folder=folder)
        else:
            servers = read_servers(home, names=[written])
            found = next((each for each in servers.ready if each.name == written), None)
            if found is None:
                problem = servers.problems.get(written)
                raise ConfigError(
                    f"The MCP server {written!r}, which `knowledge` names, cannot be used"
                    + (f": {problem.placed}" if problem else ": it is not in mcp.json."),
                    advice=f"Add it: loom-flow-server mcp add {written} -- COMMAND",
                )
            server = found
        return server


def _check_installed() -> None:
    if not all(find_spec(name) is not None for name in _NEEDED):
        raise ConfigError(
            "`knowledge` cannot be searched: a required package is not installed.",
            advice=how_to_install("loom-flow-server[kb]"),
        )


def _closer(close: Callable[[], None]) -> Callable[[], Awaitable[None]]:
    async def close_in_thread() -> None:
        await to_thread.run_sync(close)

    return close_in_thread
