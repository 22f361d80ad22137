"""The sources of one run of the program, with hot reload when the configuration changes."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING, cast

import anyio
from anyio import to_thread

from loom_core.errors import ConfigError, LoomError
from loom_core.knowledge.sources.federation.federation import Federation
from loom_core.knowledge.sources.library import Library
from loom_core.knowledge.sources.local import LocalKnowledgeBase
from loom_core.plugins import create
from loom_query.configuration.collection_config import CollectionSourceConfig
from loom_query.configuration.query_file import QueryFile, SourceProblem
from loom_query.configuration.source_config import DocumentsConfig, LocalConfig
from loom_query.federation.live_source import LiveSource, McpLiveSource, OwnLiveSource
from loom_query.federation.plan import fingerprint, plan

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from pathlib import Path

    import httpx2
    from anyio.abc import TaskGroup

    from loom_core.knowledge.interface import PassageSource, Retriever
    from loom_core.knowledge.sources.collections.config import Engine
    from loom_core.knowledge.sources.collections.source import CollectionSource
    from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase
    from loom_core.knowledge.sources.remote.http import HTTPKnowledgeBase
    from loom_core.llm.interface import LLMProvider
    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_core.mcp_client.connections.connection import ServerConnection
    from loom_query.federation.engine_loader import EngineLoader
    from loom_query.federation.language_model import LanguageModel
    from loom_query.federation.plan import PlannedSource, SourcePlan
    from loom_query.settings import Settings

__all__ = ["Sources"]

_log = logging.getLogger(__name__)

_WITH_MODEL = frozenset({"decomposition", "hyde", "multi_query"})
"""Retrievers that need a language model."""


class Sources:
    """The sources that can be asked now.

    Attributes:
        settings: of the run.
        file: the last valid configuration.
        problems: the entries that cannot be used.
        complaint: reason why the current configuration is not used; empty if it is used.
    """

    def __init__(
        self, settings: Settings, engine: EngineLoader, model: LanguageModel, *, upkeep: bool
    ) -> None:
        """Open nothing yet.

        Args:
            settings: of the run.
            engine: loads the modules that local knowledge bases need.
            model: the language model, for retrievers that need one.
            upkeep: whether this is a server and not one command. Then MCP servers start in the background,
                and local knowledge bases get maintenance, as in their own server: models load while a
                question waits, and documents without embeddings get them.
        """
        self.settings = settings
        self._engine = engine
        self._model = model
        self._upkeep = upkeep
        self.file = QueryFile()
        self.problems: tuple[SourceProblem, ...] = ()
        self.complaint = ""
        self._live: dict[str, tuple[PlannedSource, LiveSource]] = {}
        self._libraries: dict[Path, Library] = {}
        self._tasks: TaskGroup | None = None
        self._wanted = False
        self._seen: object = None

    @property
    def live(self) -> Mapping[str, LiveSource]:
        """The sources that can be asked, by name, in order."""
        return {name: source for name, (_, source) in self._live.items()}

    def description_key(self) -> object:
        """Return the descriptions that clients see; compare two results to detect a change."""
        return [source.info for source in self.live.values()]

    def load(self) -> None:
        """Read the configuration for the first time. Blocks.

        Raises:
            ConfigError: it cannot be read.
        """
        self._seen = fingerprint(self.settings, self.file)
        self._take(plan(self.settings))

    async def refresh(self) -> None:
        """Reload what has changed on disk; a broken configuration changes nothing."""
        seen = await to_thread.run_sync(fingerprint, self.settings, self.file)
        if seen == self._seen:
            return
        self._seen = seen
        try:
            async with self._engine.turn:
                gone = self._take(await to_thread.run_sync(plan, self.settings))
        except ConfigError as error:
            if self.complaint != str(error):
                _log.warning("The changed configuration is not used: %s", error)
            self.complaint = str(error)
            return
        self.complaint = ""
        self._begin()
        for source in gone:
            await source.retire()

    def use_tasks(self, tasks: TaskGroup) -> None:
        """Use the caller's task group for connections and for the maintenance of local knowledge bases."""
        self._tasks = tasks
        if self._upkeep:
            for library in self._libraries.values():
                library.work_in(tasks)

    def start_servers(self) -> None:
        """Start or connect to every MCP server that is a source, in the background.

        Servers that become sources later are started then.
        """
        self._wanted = self._upkeep
        self._begin()

    @asynccontextmanager
    async def federate(self, names: Sequence[str]) -> AsyncGenerator[Federation]:
        """Open a federation of some sources. They stay open in the block, even if the configuration changes.

        Args:
            names: names of sources in `live`.
        """
        chosen = [self.live[name] for name in names]
        async with AsyncExitStack() as uses:
            for source in chosen:
                await uses.enter_async_context(source.in_use())
            yield Federation(
                [source.provider for source in chosen],
                deadlines={source.name: source.deadline for source in chosen},
            )

    async def close(self) -> None:
        """Close all sources."""
        async with anyio.create_task_group() as tasks:
            for source in self.live.values():
                tasks.start_soon(source.close)
        for library in self._libraries.values():
            library.close()

    def _take(self, planned: SourcePlan) -> list[LiveSource]:
        """Apply a plan: open new sources, keep unchanged ones, and return those to close."""
        live: dict[str, tuple[PlannedSource, LiveSource]] = {}
        problems = list(planned.problems)
        for source in planned.sources:
            known = self._live.get(source.name)
            try:
                live[source.name] = (source, self._create_source(source, known))
            except LoomError as error:
                where = f"{source.configured.where}: {error.message}"
                problems.append(SourceProblem(source.name, source.configured.kind, where, error.advice))
        kept = {id(source) for _, source in live.values()}
        gone = [source for _, source in self._live.values() if id(source) not in kept]
        self._live, self.file, self.problems = live, planned.file, tuple(problems)
        return gone

    def _begin(self) -> None:
        if self._wanted:
            for source in self.live.values():
                if isinstance(source, McpLiveSource):
                    source.begin()

    def _create_source(
        self, planned: PlannedSource, known: tuple[PlannedSource, LiveSource] | None
    ) -> LiveSource:
        """Open the planned source; keep the open one if it is the same."""
        if known is not None and known[0] == planned:
            return known[1]
        deadline = planned.configured.deadline
        if planned.place is not None and planned.info is not None:
            library = self._library(planned.place.home)
            provider = LocalKnowledgeBase(
                library, planned.info, base=planned.place.name, retriever=self._retriever(planned)
            )
            return OwnLiveSource(provider, base=provider, kind="local", deadline=deadline)
        if planned.server is not None:
            return self._server(planned, planned.server)
        if planned.configured.kind == "http":
            return LiveSource(_service(planned), kind="http", deadline=deadline)
        if isinstance(planned.configured.config, CollectionSourceConfig):
            stored = self._collection(planned, planned.configured.config)
            return LiveSource(stored, kind=stored.engine, deadline=deadline, close=stored.close)
        texts = _texts(planned)
        return OwnLiveSource(texts, base=texts, kind="documents", deadline=deadline, close=texts.close)

    def _retriever(self, planned: PlannedSource) -> Callable[[PassageSource], Awaitable[Retriever]] | None:
        """Return a factory of the retriever that a source names; one retriever per language model."""
        config = planned.configured.config
        if not isinstance(config, LocalConfig | CollectionSourceConfig) or not config.retriever:
            return None
        made: tuple[PassageSource, LLMProvider | None, Retriever] | None = None

        async def retriever(source: PassageSource) -> Retriever:
            nonlocal made
            model, params = None, dict(config.retriever_params)
            if config.retriever in _WITH_MODEL:
                model = params["llm_provider"] = await self._model.get(self.file)
                if model is None:
                    raise ConfigError(
                        f"The retriever {config.retriever!r} needs a language model, and there is none.",
                        advice=f"Set `llm` in {self.settings.config}.",
                    )
            if made is None or made[0] is not source or made[1] is not model:
                made = source, model, create("retriever", config.retriever, [source], **params)
            return made[2]

        return retriever

    def _collection(self, planned: PlannedSource, config: CollectionSourceConfig) -> CollectionSource:
        from loom_core.knowledge.sources.collections.source import CollectionSource

        said = planned.configured.written
        return CollectionSource(
            cast("Engine", planned.configured.kind),
            config,
            name=planned.name,
            description=said.description,
            search_hints=said.hints,
            retriever=self._retriever(planned),
        )

    def _server(self, planned: PlannedSource, server: ServerConfig) -> McpLiveSource:
        from loom_core.knowledge.sources.remote.mcp import MCPKnowledgeBase
        from loom_core.mcp_client.connections.connection import ServerConnection
        from loom_query.configuration.mcp_config import McpConfig

        config = planned.configured.config
        assert isinstance(config, McpConfig)
        connection = ServerConnection(server, auth=self._login)
        said = planned.configured.written
        provider = MCPKnowledgeBase(
            connection, config, name=planned.name, description=said.description, search_hints=said.hints
        )
        return McpLiveSource(
            provider,
            connection=connection,
            begin=self._beginner(connection),
            deadline=planned.configured.deadline,
            patient=not self._upkeep,
        )

    def _login(self, server: ServerConfig) -> httpx2.Auth | None:
        from loom_core.mcp_client.oauth.authentication import (
            oauth_auth,  # loads modules that few servers need
        )

        return oauth_auth(server, self.settings.home)

    def _beginner(self, connection: ServerConnection) -> Callable[[], None]:
        """Return a function that starts the supervisor task of a connection, once."""
        begun = False

        def begin() -> None:
            nonlocal begun
            assert self._tasks is not None, "`use_tasks` comes before the first question"
            if not begun:
                begun = True
                self._tasks.start_soon(connection.run)

        return begin

    def _library(self, home: Path) -> Library:
        """Return the library of a home, shared by all its sources; it opens knowledge bases on demand."""
        library = self._libraries.get(home)
        if library is None:
            library = self._libraries[home] = Library(
                home, database=self.settings.database_of(home), program="loom-query-server"
            )
            if self._tasks is not None and self._upkeep:
                library.work_in(self._tasks)
        return library


def _service(planned: PlannedSource) -> HTTPKnowledgeBase:
    from loom_core.knowledge.sources.remote.http import HTTPKnowledgeBase, HTTPKnowledgeConfig

    config, said = planned.configured.config, planned.configured.written
    assert isinstance(config, HTTPKnowledgeConfig)
    return HTTPKnowledgeBase(config, name=planned.name, description=said.description, search_hints=said.hints)


def _texts(planned: PlannedSource) -> DocumentsKnowledgeBase:
    from loom_core.knowledge.sources.documents import DocumentsKnowledgeBase

    config, said = planned.configured.config, planned.configured.written
    assert isinstance(config, DocumentsConfig)
    return DocumentsKnowledgeBase(
        config.documents, name=planned.name, description=said.description, search_hints=said.hints
    )
