"""Open resources of a process: the flow file, its model and knowledge, the journal, and assistants."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Self

import anyio
from anyio import to_thread

from loom_core.errors import ConfigError, LoomError
from loom_core.flow.config.flow_file import FlowFileWatcher, LoadedFlows, read_flow_file
from loom_core.flow.config.models import DocumentsSource, HttpSource, LocalSource, McpSource
from loom_core.flow.config.models_step import iter_steps
from loom_core.flow.executor.definition import server_tools
from loom_core.installation import how_to_install
from loom_flow.settings import invocation

if TYPE_CHECKING:
    from collections.abc import Awaitable
    from types import TracebackType

    from anyio.abc import TaskGroup

    from loom_core.flow.config import FlowFile, KnowledgeSource
    from loom_core.flow.knowledge import FlowKnowledge, ProviderKnowledge
    from loom_core.flow.orchestrator import WorkflowOrchestrator
    from loom_core.knowledge.interface import KnowledgeBaseProvider
    from loom_core.knowledge.sources.library import Library
    from loom_core.llm.config import ProviderConfig
    from loom_core.llm.interface import LLMProvider
    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_core.mcp_client.remote_tools import RemoteTools
    from loom_core.runs.journal import Journal
    from loom_core.tools.auditing.audit import AuditLog
    from loom_core.tools.interface import Tool
    from loom_flow.settings import Settings

__all__ = ["FlowEngine", "build_model", "choose_model", "model_from_settings"]

_log = logging.getLogger(__name__)

_CLOSE_SECONDS = 5.0
_ADOPT_AFTER = 1.0  # seconds; the client's first requests come first
_LOOK_SECONDS = 2.0
_SERVER_SECONDS = 5.0  # for MCP servers with tools of steps and skills to start

_Flows = frozenset[str] | None


class FlowEngine:
    """Engine that opens each resource on first use. Use it as `async with`.

    Orphaned runs are adopted a second after the start. It adopts orphaned runs of other processes, if that is
    wanted.

    Attributes:
        model: name of the model that decides if no rule does; empty for none.
    """

    def __init__(self, settings: Settings, *, adopts: bool = True) -> None:
        self.adopts = adopts
        self._settings = settings
        self._watch = FlowFileWatcher(settings.config)
        self._loaded: LoadedFlows | None = None
        self._tasks: TaskGroup | None = None
        self._journal: Journal | None = None
        self._audit: AuditLog | None = None
        self._mcp: RemoteTools | None = None
        self._sources: _KnowledgeSources | None = None
        self._assistants: dict[_Flows, _AssistantTask] = {}
        self._turn = anyio.Lock()
        self._looking = anyio.Lock()
        self._models: list[LLMProvider] = []
        self._model_problem = ""
        self._refused: LoadedFlows | None = None
        self._refusal = ""
        self.model = ""

    async def __aenter__(self) -> Self:
        self._tasks = anyio.create_task_group()
        await self._tasks.__aenter__()
        if self.adopts:
            self._tasks.start_soon(self._adopt)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        assert self._tasks is not None
        self._tasks.cancel_scope.cancel()
        # Without the error, which the group would wrap: it does not come from its tasks.
        await self._tasks.__aexit__(None, None, None)
        await self._close()

    @property
    def current(self) -> LoadedFlows | None:
        """The last valid flow file; None if it does not exist."""
        return self._loaded

    @property
    def problems(self) -> list[str]:
        """Problems of the current file, the model and MCP servers."""
        found = [self._watch.problem, self._refusal, self._model_problem]
        return [*filter(None, found), *(self._mcp.problems() if self._mcp is not None else ())]

    def load(self) -> LoadedFlows | None:
        """Return the flow file; None if it does not exist and is optional. Blocks.

        Raises:
            ConfigError: it is invalid, or a named file does not exist.
        """
        if self._loaded is None and (self._settings.config_given or self._settings.config.exists()):
            self._loaded = read_flow_file(self._settings.config)
        return self._loaded

    async def poll(self) -> bool:
        """Reload the file if it has changed; return whether anything has changed.

        An invalid file changes nothing; `problems` says why.

        Raises:
            ConfigError: it is invalid, and no earlier version was valid.
        """
        if self._loaded is None and not await to_thread.run_sync(self._settings.config.exists):
            return False
        if self._loaded is not None and self._looking.locked():
            return False  # another call reloads it
        async with self._looking:
            loaded = await self._watch.latest()
            if self._loaded is not None and loaded.version == self._loaded.version:
                self._refused, self._refusal = None, ""
                return False
            return loaded is not self._refused and await self._reload_assistants(loaded)

    async def _reload_assistants(self, loaded: LoadedFlows) -> bool:
        """Reload all assistants with another file; return False if it cannot be used."""
        model = self.model, self._model_problem
        try:
            for assistant in list(self._assistants.values()):
                await assistant.reload(loaded)
        except ConfigError as error:
            self.model, self._model_problem = model
            self._refused = loaded
            self._refusal = f"{error} The last valid version stays in use."
            _log.warning("%s", self._refusal)
            return False
        self._loaded, self._refused, self._refusal = loaded, None, ""
        return True

    def journal(self) -> Journal:
        """Return the journal of this home."""
        if self._journal is None:
            from loom_core.runs.journal import Journal

            self._journal = Journal(self._settings.journal)
        return self._journal

    async def assistant(self, flows: _Flows = None) -> WorkflowOrchestrator:
        """Return the orchestrator of messages and runs.

        Args:
            flows: ids of the flows that it may start; None for all.

        Raises:
            ConfigError: there is no usable flow file; the message says what to write.
            LoomError: the assistant has ended unexpectedly.
        """
        loaded = await self.latest()
        assert self._tasks is not None, "use an engine as `async with`"
        async with self._turn:
            if flows not in self._assistants:
                self._assistants[flows] = _AssistantTask(self, flows)
                self._tasks.start_soon(self._assistants[flows].work, name="flows")
            assistant = self._assistants[flows]
        return await assistant.ready(loaded)

    async def latest(self) -> LoadedFlows:
        """Return the current flow file, or the last valid one.

        Raises:
            ConfigError: it does not exist, and the message says what to write; or it was never valid.
        """
        await self.poll()
        if self._loaded is None:
            raise ConfigError(
                f"There is no flow yet: {self._settings.config} does not exist.",
                advice=f"Write one that works, to begin with: {invocation(self._settings, 'init')}. "
                "Or name another by --config. "
                'The minimum is {"flow_url": "https://api.example", "flows": [{"flow_id": "order_status", '
                '"trigger_patterns": ["where is my order"], "endpoint": "GET /orders"}]}; '
                "docs/reference/flow-config.md has every key.",
            )
        return self._loaded

    async def language_model(self) -> LLMProvider:
        """Return the language model.

        Raises:
            ConfigError: none is configured, or it is not usable.
        """
        config = choose_model((await self.latest()).file, self._settings)
        if config is None:
            raise ConfigError(
                "There is no language model.", advice="Name one as `model` of the file, or by --provider."
            )
        llm = await to_thread.run_sync(build_model, config)
        self._models.append(llm)
        return llm

    async def build_assistant(self, loaded: LoadedFlows, flows: _Flows) -> WorkflowOrchestrator:
        """Build an assistant that is not open yet.

        Raises:
            ConfigError: the file is not usable.
        """
        await to_thread.run_sync(import_module, "loom_core.flow.orchestrator")  # it takes a moment
        from loom_core.flow.orchestrator import WorkflowOrchestrator

        loaded, llm = await self.with_model(limit_flows(loaded, flows))
        return WorkflowOrchestrator(
            loaded,
            journal=self.journal(),
            llm=llm,
            knowledge=await self.knowledge(loaded.file),
            live=await self.tools_of_servers(loaded.file),
            audit=await to_thread.run_sync(self._audit_log),
            look_seconds=_LOOK_SECONDS if self.adopts and flows is None else None,
        )

    async def with_model(self, loaded: LoadedFlows) -> tuple[LoadedFlows, LLMProvider | None]:
        """Return a file with its model; if the model is not available, without it, and note the problem."""
        self.model = self._model_problem = ""
        try:
            config = choose_model(loaded.file, self._settings)
            llm = None if config is None else await to_thread.run_sync(build_model, config)
        except ConfigError as error:
            self._model_problem = str(error)
            _log.warning("rules decide alone: %s", error)
            llm = None
        if llm is None:
            return replace(loaded, file=loaded.file.model_copy(update={"model": None})), None
        self._models.append(llm)
        self.model = f"{llm.name}/{llm.model}".rstrip("/")
        return loaded, llm

    async def knowledge(self, file: FlowFile) -> FlowKnowledge | None:
        """Return the source of the file's `knowledge`.

        Raises:
            ConfigError: it is not usable.
        """
        if file.knowledge is None:
            return None
        if self._sources is None:
            assert self._tasks is not None
            self._sources = _KnowledgeSources(self._settings, self._tasks)
        return await self._sources.of(file.knowledge)

    async def tools_of_servers(self, file: FlowFile) -> Sequence[Callable[[], tuple[Tool, ...]]]:
        """Start the MCP servers whose tools steps and skills name, and return the tools."""
        names = list(dict.fromkeys(name.partition(":")[0] for name in server_tools(file)))
        if names:
            if self._mcp is None:
                from loom_core.mcp_client.remote_tools import RemoteTools

                assert self._tasks is not None
                self._mcp = RemoteTools(self._settings.home, user="the flow file")
                self._mcp.start_in(self._tasks)
            await self._mcp.wait_for_servers(names, seconds=_SERVER_SECONDS)
        return [self._mcp.live(names)] if self._mcp is not None and names else []

    def _audit_log(self) -> AuditLog:
        if self._audit is None:
            from loom_core.tools.auditing.audit import AuditLog

            self._audit = AuditLog(self._settings.audit, server="loom-flow-server")
        return self._audit

    async def _adopt(self) -> None:
        """Adopt orphaned runs, as soon as there may be any."""
        await anyio.sleep(_ADOPT_AFTER)
        while not self._settings.journal.exists() or self._loaded is None:  # noqa: ASYNC110 - others make it
            await anyio.sleep(_LOOK_SECONDS)
        try:
            await self.assistant()
        except LoomError as error:
            _log.warning("orphaned runs are not adopted: %s", error)

    async def _close(self) -> None:
        with anyio.move_on_after(_CLOSE_SECONDS, shield=True):
            if self._mcp is not None:
                await self._mcp.close()
            if self._sources is not None:
                await self._sources.close()
            for llm in self._models:
                await llm.aclose()
            if self._journal is not None:
                await self._journal.aclose()


class _AssistantTask:
    """An assistant in its own task, which opens and closes it; rebuilt if building it failed."""

    def __init__(self, engine: FlowEngine, flows: _Flows) -> None:
        self._engine = engine
        self._flows = flows
        self._loaded: LoadedFlows | None = None
        self._open: WorkflowOrchestrator | None = None
        self._error: LoomError | None = None
        self._wanted = anyio.Event()
        self._tried = anyio.Event()
        self._turn = anyio.Lock()

    async def ready(self, loaded: LoadedFlows) -> WorkflowOrchestrator:
        """Return the open assistant for a file.

        Raises:
            LoomError: building it failed.
        """
        async with self._turn:
            if self._open is None:
                self._loaded = loaded
                self._tried = anyio.Event()
                self._wanted.set()
                await self._tried.wait()
            if self._open is None:
                raise self._error or LoomError(
                    "This process cannot run flows any more.", advice="Its log says why; restart it."
                )
            return self._open

    async def reload(self, loaded: LoadedFlows) -> None:
        """Reload the assistant with another file, if it is open.

        Raises:
            ConfigError: the file is not usable; nothing changes.
        """
        if self._open is None:
            return
        changed, llm = await self._engine.with_model(limit_flows(loaded, self._flows))
        knowledge = await self._engine.knowledge(changed.file)
        live = await self._engine.tools_of_servers(changed.file)
        await self._open.reload(changed, llm=llm, knowledge=knowledge, live=live)
        self._loaded = loaded

    async def work(self) -> None:
        """Build the assistant on demand, and keep it open."""
        while True:
            await self._wanted.wait()
            self._wanted = anyio.Event()
            self._error = None
            try:
                assert self._loaded is not None
                assistant = await self._engine.build_assistant(self._loaded, self._flows)
                async with assistant:
                    self._open = assistant
                    self._tried.set()
                    await anyio.sleep_forever()
            except LoomError as error:
                self._error = error
            except Exception:  # noqa: BLE001 - calls say that there is none, and others go on
                _log.exception("the assistant has ended unexpectedly")
            finally:
                self._open = None
                self._tried.set()


def limit_flows(loaded: LoadedFlows, flows: _Flows) -> LoadedFlows:
    """Return a file with only some of its flows, and those that these run."""
    if flows is None:
        return loaded
    wanted, file = set[str](), loaded.file
    left = [*flows]
    while left:
        flow = file.flow(left.pop())
        if flow is not None and flow.flow_id not in wanted:
            wanted.add(flow.flow_id)
            left += [step.workflow_id for step in iter_steps(flow.steps) if step.workflow_id]
    kept = [flow for flow in file.flows if flow.flow_id in wanted]
    return replace(loaded, file=file.model_copy(update={"flows": kept}))


_NAME = "knowledge"
_NEEDED = ("chromadb", "numpy", "onnxruntime", "tantivy")  # of the extra `kb`; checked without an import


class _KnowledgeSources:
    """Factory of knowledge sources; each is built once and closed at the end.

    The caller ends the task group.
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


def choose_model(file: FlowFile, settings: Settings) -> ProviderConfig | None:
    """Return the model of a file, else that of `--provider`; None for rules alone.

    Raises:
        ConfigError: `--provider` names no model.
    """
    return model_from_settings(settings) if file.model is None else file.model


def model_from_settings(settings: Settings) -> ProviderConfig | None:
    """Return the model of `--provider`, even if it is not usable here; None if there is none.

    Raises:
        ConfigError: there is no such provider.
    """
    if not settings.provider:
        return None
    from loom_core.llm.config import ProviderConfig
    from loom_core.llm.factory import provider_choices

    config = ProviderConfig.from_text(settings.provider)
    if config.provider not in provider_choices():
        raise ConfigError(
            f"--provider: there is no {config.provider[:80]!r}.",
            advice=f"Choose one of: {', '.join(provider_choices())}.",
        )
    return config


def build_model(config: ProviderConfig) -> LLMProvider:
    """Build a model that is usable here. Blocks if a keyring is read.

    Raises:
        ConfigError: it is not usable.
    """
    from loom_core.llm.factory import create_provider

    llm = create_provider(config)
    if reason := llm.problem():
        cause, _, remedy = reason.partition(". ")
        raise ConfigError(
            f"The language model {llm.name} is not usable: {cause.rstrip('.')}.",
            advice=f"{remedy.rstrip('.')}. Or leave `model` out: then rules decide alone.".lstrip(". "),
        )
    return llm
