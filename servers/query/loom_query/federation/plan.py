"""Plan of sources: the desired state, from the configuration, the knowledge bases and `mcp.json`."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from loom_core.errors import ConfigError, StoreError
from loom_core.knowledge.sources.catalogue import Catalogue
from loom_core.knowledge.sources.unified_tool import SourceInfo
from loom_core.mcp_client.configuration.config_file import user_file
from loom_core.plugins import list_registered
from loom_query.configuration.collection_config import CollectionSourceConfig
from loom_query.configuration.query_file import QueryFile, SourceProblem, read_query_file
from loom_query.configuration.source_config import LocalConfig

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom_core.knowledge.sources.catalogue import CatalogueEntry
    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_query.configuration.source_config import ConfiguredSource
    from loom_query.settings import Settings

__all__ = ["LocalBase", "PlannedSource", "SourcePlan", "fingerprint", "plan"]

_NO_SERVER_NAME = re.compile(r"[^\w.-]")


@dataclass(frozen=True, slots=True)
class LocalBase:
    """Location of a knowledge base: a Loom home and its name there."""

    home: Path
    name: str


@dataclass(frozen=True, slots=True)
class PlannedSource:
    """A desired source. If it equals the previous one, the open source stays in use.

    Attributes:
        name: name of the source.
        configured: the entry that it comes from.
        place: the knowledge base, for a local source.
        server: the server, for a source that is asked over MCP.
        info: current description, for a local source.
    """

    name: str
    configured: ConfiguredSource
    place: LocalBase | None = None
    server: ServerConfig | None = None
    info: SourceInfo | None = None


@dataclass(frozen=True, slots=True)
class SourcePlan:
    """The desired sources.

    Attributes:
        file: the configuration.
        sources: those that can be asked, with unique names.
        problems: the entries that cannot be used.
    """

    file: QueryFile
    sources: tuple[PlannedSource, ...]
    problems: tuple[SourceProblem, ...]


def plan(settings: Settings) -> SourcePlan:
    """Plan the sources of the current configuration. Blocks; may read a keyring.

    Raises:
        ConfigError: the configuration cannot be read.
    """
    file = read_query_file(settings.config, required=settings.config_given)
    sources: dict[str, PlannedSource] = {}
    problems = list(file.problems)
    for configured in file.sources:
        try:
            for planned in _plan_source(configured, settings):
                if isinstance(planned, SourceProblem):
                    problems.append(planned)
                elif planned.name in sources:
                    problems.append(_taken_error(planned, sources[planned.name]))
                else:
                    sources[planned.name] = planned
        except (ConfigError, StoreError) as error:
            problems.append(SourceProblem(configured.name, configured.kind, error.message, error.advice))
        except OSError as error:  # of a folder that cannot be looked at
            message = f"{configured.where}: {error.filename} cannot be read: {error.strerror}."
            advice = "Correct `home`, or the rights of that folder."
            problems.append(SourceProblem(configured.name, configured.kind, message, advice))
    return SourcePlan(file, tuple(sources.values()), tuple(problems))


def fingerprint(settings: Settings, file: QueryFile) -> object:
    """Return a fingerprint that changes when a plan may change: dates and sizes of its files. Blocks.

    Args:
        settings: settings of the run.
        file: the configuration, which names the folders that knowledge bases are in or may come to.
    """
    local = [source.config for source in file.sources if isinstance(source.config, LocalConfig)]
    homes = {settings.home, *(_home_of(config, settings) for config in local)}
    files: dict[Path, tuple[int, int]] = {}
    for path in (settings.config, user_file(settings.home)):
        try:
            status = path.stat()
        except OSError:
            continue
        files[path] = (status.st_mtime_ns, status.st_size)
    return files, [_marks(home, settings.database_of(home)) for home in sorted(homes)]


@cache
def _catalogue(home: Path, database: str) -> Catalogue:
    """Return the catalogue of a home, which keeps its connections to a database."""
    return Catalogue(home, database=database)


def _marks(home: Path, database: str) -> object:
    try:
        return _catalogue(home, database).marks()
    except (StoreError, OSError) as error:  # the plan says so
        return str(error)


def _home_of(config: LocalConfig, settings: Settings) -> Path:
    """Return Loom's folder that a source's knowledge bases are in; it need not exist."""
    if not config.home:
        return settings.home
    # `Path.expanduser` would raise an error for the folder of an unknown user.
    return settings.config.parent / os.path.expanduser(config.home)  # noqa: PTH111


def _plan_source(configured: ConfiguredSource, settings: Settings) -> Iterator[PlannedSource | SourceProblem]:
    config = configured.config
    if isinstance(config, LocalConfig | CollectionSourceConfig):
        _check_retriever(configured, config)
    if isinstance(config, LocalConfig):
        yield from _local(configured, config, settings)
    elif configured.kind == "mcp":
        yield PlannedSource(configured.name, configured, server=_server(configured, settings))
    else:
        yield PlannedSource(configured.name, configured)


def _check_retriever(configured: ConfiguredSource, config: LocalConfig | CollectionSourceConfig) -> None:
    if config.retriever and config.retriever not in (known := list_registered("retriever")):
        message = f"{configured.where}: there is no retriever {config.retriever!r}."
        raise ConfigError(message, advice=f"There are: {', '.join(known)}.")
    if config.retriever_params and not config.retriever:
        message = f"{configured.where}: retriever_params are given without a retriever."
        raise ConfigError(message, advice="Name the retriever, or leave them out.")


def _local(
    configured: ConfiguredSource, config: LocalConfig, settings: Settings
) -> Iterator[PlannedSource | SourceProblem]:
    home = _home_of(config, settings)
    if config.home and not home.is_dir():
        raise ConfigError(f"{configured.where}: there is no folder {home}.", advice="Correct `home`.")
    entries = {entry.name: entry for entry in _catalogue(home, settings.database_of(home)).list()}
    if not config.knowledge_base:
        for entry in entries.values():
            yield _base(entry.name, entry, configured, home)
        return
    entry = entries.get(config.knowledge_base)
    if entry is None:
        known = (
            f"There are: {', '.join(entries)}." if entries else "There is none yet: make it with loom-kb add."
        )
        message = f"{configured.where}: there is no knowledge base {config.knowledge_base!r}."
        raise ConfigError(message, advice=known)
    yield _base(configured.name, entry, configured, home)


def _base(
    name: str, entry: CatalogueEntry, configured: ConfiguredSource, home: Path
) -> PlannedSource | SourceProblem:
    if entry.problem:
        advice = f"loom-kb check --kb {entry.name} says what can be done."
        return SourceProblem(name, "local", f"It cannot be used: {entry.problem}.", advice)
    said = configured.written
    info = SourceInfo(
        name=name,
        description=said.description or entry.source.description,
        search_hints=said.hints or entry.source.search_hints,
        supported_filters=entry.source.supported_filters,
    )
    return PlannedSource(name, configured, place=LocalBase(home, entry.name), info=info)


def _server(configured: ConfiguredSource, settings: Settings) -> ServerConfig:
    """Return the server of a source: an entry of `mcp.json` by its name, or one in the source itself."""
    from loom_core.mcp_client.configuration.expansion import Expansion
    from loom_core.mcp_client.configuration.server_config import ServerConfig
    from loom_core.mcp_client.configuration.servers import read_servers
    from loom_query.configuration.mcp_config import McpConfig

    assert isinstance(configured.config, McpConfig)
    written = configured.config.server
    if isinstance(written, dict):
        name = _NO_SERVER_NAME.sub("_", configured.name)
        try:
            return ServerConfig.of_entry(
                name, written, expansion=Expansion(os.environ), folder=settings.config.parent
            )
        except ConfigError as error:
            raise ConfigError(f"{configured.where}: server: {error.message}", advice=error.advice) from None
    servers = read_servers(settings.home, names=[written])
    found = next((server for server in servers.ready if server.name == written), None)
    if found is not None:
        return found.model_copy(update={"where": ""})  # an entry that has moved is the same one
    problem = servers.problems.get(written) or next(iter(servers.problems.values()), None)
    if problem is None:
        raise ConfigError(
            f"{configured.where}: there is no server {written!r} in {user_file(settings.home)}.",
            advice=f"Add it: loom-query-server mcp add {written} -- COMMAND",
        )
    raise ConfigError(f"{problem.where or configured.where}: {problem.message}", advice=problem.advice)


def _taken_error(second: PlannedSource, first: PlannedSource) -> SourceProblem:
    message = f"{second.configured.where}: another source is called {second.name!r} already."
    advice = f"Give one of them another name; {first.configured.where} counts."
    return SourceProblem(second.name, second.configured.kind, message, advice)
