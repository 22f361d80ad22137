"""`loom-query-server doctor`: checks of the configuration, the language model and every source; read-only."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

import anyio

from loom_core.errors import ConfigError, LoomError
from loom_core.knowledge.sources.collections.source import CollectionSource
from loom_core.server.cli.health import HealthSection, fine, problem, problem_from_error, warning
from loom_core.server.doctor.check_runner import Check, blocking
from loom_core.server.doctor.language_model import language_model_variables, model_section
from loom_query.configuration.query_file import read_query_file
from loom_query.federation.live_source import McpLiveSource
from loom_query.service import QueryService

if TYPE_CHECKING:
    from loom_core.server.cli.health import Finding
    from loom_query.configuration.query_file import SourceProblem
    from loom_query.federation.live_source import LiveSource
    from loom_query.settings import Settings

__all__ = ["own_checks", "variables"]

_MODEL_SECONDS = 15.0  # the keyring may ask the user
_SOURCES_SECONDS = 30.0
_QUESTION = "loom"  # what remote sources are asked; what they find does not matter
_OTHER_MODEL = "Correct `llm` in the configuration, or leave it out: then `ask` gives passages only."
_CORRECT = "Correct it there."
_INSIDE = {"local", "documents"}  # kinds of sources that are in this program


def own_checks(settings: Settings) -> list[Check]:
    """Return the checks of this server, next to the common ones."""
    return [
        Check("configuration", blocking(partial(_configuration, settings)), seconds=_MODEL_SECONDS),
        Check("language model", blocking(partial(_model, settings)), seconds=_MODEL_SECONDS),
        Check("sources", partial(_sources, settings), seconds=_SOURCES_SECONDS + 5.0),
    ]


def variables(settings: Settings) -> set[str]:
    """Return the environment variables that may hold keys."""
    usual = language_model_variables()
    try:
        return usual | {*read_query_file(settings.config).variables}
    except ConfigError:  # reported by its own check
        return usual


def _configuration(settings: Settings) -> HealthSection:
    file = "none: all knowledge bases are sources"
    if settings.config_given or settings.config.exists():
        file = str(settings.config)
    sources = QueryService(settings).sources
    try:
        sources.load()
    except ConfigError as error:
        finding = problem_from_error(error, "configuration-unreadable", remedy=_CORRECT)
        return HealthSection(name="configuration", facts={"file": file}, findings=[finding])
    kinds = {name: source.kind for name, source in sources.live.items()}
    findings = [_broken(each) for each in sources.problems]
    if not kinds and not findings:
        remedy = f"Add documents with loom-kb, or name sources in {settings.config}."
        findings.append(warning("no-source", "There is nothing to ask.", remedy))
    return HealthSection(name="configuration", facts={"file": file, "sources": kinds}, findings=findings)


def _broken(found: SourceProblem) -> Finding:
    return problem("source-unusable", f"The source {found.name!r}: {found.message}", found.advice or _CORRECT)


def _model(settings: Settings) -> HealthSection | None:
    service = QueryService(settings)
    try:
        service.sources.load()
    except ConfigError:  # reported by its own check
        return None
    return model_section(service.language_model, otherwise=_OTHER_MODEL)


async def _sources(settings: Settings) -> list[HealthSection]:
    """Ask every remote source a question; one that does not answer in time gets a finding."""
    service = QueryService(settings, upkeep=False)
    try:
        await blocking(service.sources.load)()
    except ConfigError:  # reported by its own check
        return []
    asked = [source for source in service.sources.live.values() if source.kind not in _INSIDE]
    late = problem(
        "gives-no-answer",
        f"It gave no answer within {_SOURCES_SECONDS:g} s.",
        "See whether it runs; a server alone: loom-query-server mcp test --all",
    )
    found = [HealthSection(name=f"source {source.name}", findings=[late]) for source in asked]

    async def look(place: int, source: LiveSource) -> None:
        found[place] = await _source(source)

    async with service:
        with anyio.move_on_after(_SOURCES_SECONDS):
            async with anyio.create_task_group() as tasks:
                for place, source in enumerate(asked):
                    tasks.start_soon(look, place, source)
    return found


async def _source(source: LiveSource) -> HealthSection:
    name = f"source {source.name}"
    facts: dict[str, object] = {}
    try:
        if isinstance(source, McpLiveSource) and (server := await source.connect()) is not None:
            facts = {"server": f"{server.name} {server.version}".strip(), "protocol": server.protocol_version}
        if isinstance(source.provider, CollectionSource):
            facts = asdict(await source.provider.describe())
        await source.provider.query(_QUESTION, limit=1)
    except LoomError as error:
        return HealthSection(
            name=name, facts=facts, findings=[problem_from_error(error, "source-unusable", remedy=_CORRECT)]
        )
    return HealthSection(name=name, facts=facts, findings=[fine("source", "It answers.")])
