"""`loom-kb doctor`: quick read-only diagnosis of the installation and every knowledge base."""

from __future__ import annotations

import shlex
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Literal, get_args

import anyio
from anyio import to_thread

from loom_core.errors import ConfigError, IndexDamagedError, LoomError, StoreUnavailableError
from loom_core.installation import how_to_install
from loom_core.knowledge.indexes.engines.servers import GRAPH, LEXICAL, VECTORS
from loom_core.knowledge.rag.owner.client import OwnerClient
from loom_core.knowledge.rag.owner.protocol import PeerSettings, loom_version
from loom_core.knowledge.store.changes import IndexName
from loom_core.knowledge.store.opening import describe_problem, is_emptied, open_store
from loom_core.knowledge.store.schema import SCHEMA
from loom_core.server.cli.health import (
    Finding,
    HealthSection,
    fine,
    problem,
    problem_from_error,
    warning,
)
from loom_core.server.doctor.check_runner import Check, blocking
from loom_core.server.doctor.language_model import language_model_variables, model_unavailable
from loom_core.storage.ownership import Holder, holder_of, lock_of
from loom_kb.language_model import OTHER_MODEL, model_section
from loom_kb.service import KnowledgeService

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from loom_core.knowledge.indexes.lexical import RemoteLexicalIndex
    from loom_core.knowledge.indexes.remote_graph import RemoteGraph
    from loom_core.knowledge.indexes.remote_vectors import RemoteVectors
    from loom_core.knowledge.sources.catalogue import Catalogue, CatalogueEntry
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.place import StorePlace
    from loom_kb.settings import Settings

__all__ = ["find_damaged_indexes", "own_checks", "variables"]

_BASES_SECONDS = 40.0  # for all knowledge bases; an index that hangs takes twenty
_AT_ONCE = 2
_MODEL_SECONDS = 15.0  # the keyring may ask the user
_REBUILT = (
    "Nothing is lost. The next worker process rebuilds it; to do it now: loom-kb rebuild --index {index} {kb}"
)
_REMEDIES: dict[ProblemKind, str] = {
    "inaccessible": "Put the file back, or make it and its folder writable for this user.",
    "emptied": "Restore record.db from a backup if there is one, or start over: loom-kb check --repair {kb}",
    "newer": "Upgrade this Loom: uv tool upgrade loom-kb",
    "damaged": "Repair what can be repaired: loom-kb check --repair {kb}",
    "index-gone": _REBUILT,
    "index-damaged": _REBUILT,
    "database-away": "Meanwhile questions are answered without its {index}.",
    "graph-away": "Meanwhile the graph is read from the knowledge base itself.",
    "work-stopped": "Do what it says; the process retries by itself, and its log has details.",
    "owner-version": "End that process, or install the same version for both: uv tool upgrade loom-kb",
    "owner-silent": "End that process; another takes over, and acknowledged jobs are not lost.",
}
_SHOWN_AS = {
    "chroma": "vectors",
    "links": "graph",
    "remote": "vectors",
    "remote_graph": "graph",
    "remote_words": "words",
}
_FINISHED = ("done", "failed", "cancelled")
_PROBE_SECONDS = 20.0
ProblemKind = Literal[
    "inaccessible",  # the store or its folder cannot be opened or written
    "emptied",  # the store has lost all its content
    "newer",  # a newer Loom has written it
    "damaged",  # the store cannot be read
    "index-gone",
    "index-damaged",
    "database-away",  # the server with its vectors or words cannot be asked
    "graph-away",  # the graph database cannot be asked
    "work-stopped",  # its worker process reports that it cannot work
    "owner-version",  # that process runs another version of Loom, and cannot be asked
    "owner-silent",  # that process does not answer
]
_MOST_COPIED = 256 << 20  # bytes


def own_checks(settings: Settings) -> list[Check]:
    """Return the checks of `loom-kb`, in addition to those of every server."""
    return [
        Check("embedders", blocking(_embedders)),
        Check("language model", blocking(partial(_model, settings)), seconds=_MODEL_SECONDS),
        Check("knowledge bases", partial(_knowledge_bases, settings), seconds=_BASES_SECONDS + 5.0),
    ]


def variables(settings: Settings) -> set[str]:
    """Return the environment variables that may hold API keys."""
    from loom_core.embedding.remote_models.vendors import EMBEDDING_VENDORS

    rows = EMBEDDING_VENDORS.values()
    embedders = {row.key_variable for row in rows if row.key_variable and row.needs_key}
    return embedders | language_model_variables()


def _embedders() -> HealthSection:
    from loom_core.embedding.registry import EmbedderChoice, requirement_of

    missing = {name: requirement_of(name) for name in get_args(EmbedderChoice) if name != "auto"}
    facts = {name: f"needs {wheel}" if wheel else "available" for name, wheel in missing.items()}
    return HealthSection(name="embedders", facts=facts)


def _model(settings: Settings) -> HealthSection | None:
    try:
        return model_section(KnowledgeService(settings).library)
    except ConfigError as error:
        finding = problem_from_error(error, "model-unusable", remedy="Correct --llm.")
        return HealthSection(name="language model", findings=[finding])


async def _knowledge_bases(settings: Settings) -> list[HealthSection]:
    """Examine all knowledge bases that may be used; one that takes too long is reported as such."""
    entries = await blocking(partial(_entries, settings))()
    late = problem(
        "gives-no-answer",
        f"It could not be examined within {_BASES_SECONDS:g} s.",
        "Run `loom-kb doctor` again when the machine is idle; `loom-kb check --kb NAME` checks a single one.",
    )
    found = [HealthSection(name=f"knowledge base {entry.name}", findings=[late]) for entry in entries]
    places = anyio.Semaphore(_AT_ONCE)

    async def look(place: int, entry: CatalogueEntry) -> None:
        async with places:
            # In a thread with its own event loop, which can be abandoned if a disk hangs.
            found[place] = await blocking(lambda: anyio.run(_knowledge_base, entry))()

    with anyio.move_on_after(_BASES_SECONDS):
        async with anyio.create_task_group() as tasks:
            for place, entry in enumerate(entries):
                tasks.start_soon(look, place, entry)
    return found


def _entries(settings: Settings) -> list[CatalogueEntry]:
    library = KnowledgeService(replace(settings, llm="")).library  # another check reports errors of the model
    found = [*library.list(), *library.unusable()]
    return [each for entry in found for each in _shards(library.catalogue, entry) or [entry]]


def _shards(catalogue: Catalogue, entry: CatalogueEntry) -> list[CatalogueEntry]:
    """Return the shards of a knowledge base that is split; one that cannot be read has a `problem`."""
    found: list[CatalogueEntry] = []
    for shard, place in catalogue.shards_of(entry):
        missing, problem = replace(entry, place=place, source=replace(entry.source, name=shard.name)), ""
        try:
            known = catalogue.find(place)
        except LoomError as error:
            known, problem = None, f"its database cannot be asked ({error.message})"
        found.append(known or replace(missing, problem=problem or f"it is missing in {place}"))
    return found


async def _knowledge_base(entry: CatalogueEntry) -> HealthSection:

    health = await examine(entry)
    states = {
        name: f"generation {index.generation}, {index.lag:,} changes behind" if index.built else "to be built"
        for name, index in health.indexes.items()
    }
    facts = {
        "folder": str(health.folder),
        **({"database": health.place.database} if health.place.database else {}),
        "format": health.format,
        "documents": health.documents,
        "passages": health.chunks,
        "vectors": health.vectors,
        "vectors_in": health.vectors_in,
        "words_in": health.words_in,
        "graph_in": health.graph_in,
        "embedder": health.embedder or None,
        **{f"index_{name}": state for name, state in states.items()},
        "unfinished_jobs": health.unfinished_jobs,
        "held_by": _describe_holder(health.holder),
        **({"worked_on_by": health.leader or None} if health.place.database else {}),
    }
    findings = [_finding(found, health.name) for found in health.problems]
    findings += [*_embedder_findings(health), *_work_findings(health)]
    return HealthSection(name=f"knowledge base {health.name}", facts=facts, findings=findings)


def _finding(found: HealthProblem, name: str) -> Finding:
    # For users, those of Chroma and in servers are the index of vectors or of words.
    index = _SHOWN_AS.get(found.index, found.index)
    remedy = _REMEDIES[found.kind].format(kb=f"--kb {shlex.quote(name)}", index=index)
    return problem(found.kind, found.message, f"{found.advice} {remedy}".lstrip())


def _embedder_findings(health: KnowledgeBaseHealth) -> Iterable[Finding]:
    from loom_core.embedding.registry import embedder_named, is_remote, remote_problem, requirement_of

    kb = f"--kb {shlex.quote(health.name)}"
    if is_remote(health.embedding_config):
        if reason := remote_problem(health.embedding_config):
            cause = f"Its vectors are by {health.embedder}, and {reason}"
            yield model_unavailable("embedder-unusable", cause, otherwise=OTHER_MODEL)
    elif health.embedder:
        name = embedder_named(health.embedder)
        if name is None:
            message = f"Its vectors are by {health.embedder!r}, which this Loom does not have."
            remedy = f"Upgrade this Loom, or embed all passages again: loom-kb rebuild --embedder auto {kb}"
            yield problem("embedder-unusable", message, remedy)
        elif wheel := requirement_of(name):
            message = f"Its vectors are by {health.embedder!r}, and {wheel} is not installed."
            yield problem("embedder-unusable", message, how_to_install(wheel))


def _work_findings(health: KnowledgeBaseHealth) -> Iterable[Finding]:
    if health.holder is not None:
        message = f"{_describe_holder(health.holder)} owns it; other processes use it through that one."
        yield fine("held", message)
    elif health.unfinished_jobs and not health.leader:
        message = f"{health.unfinished_jobs:,} jobs are not done, and no process works on them."
        remedy = f"Start a server, or continue them now: loom-kb add --kb {shlex.quote(health.name)}"
        yield warning("unfinished-jobs", message, remedy)


def _describe_holder(holder: Holder | None) -> str | None:
    if holder is None:
        return None
    if holder.since is None:
        return str(holder)
    return f"{holder} since {datetime.fromtimestamp(holder.since).astimezone():%Y-%m-%d %H:%M:%S}"


@dataclass(frozen=True, slots=True)
class HealthProblem:
    """A problem of a knowledge base.

    Attributes:
        kind: its kind.
        message: a sentence that describes it.
        index: the affected index, or empty.
        advice: what to do about this very problem, or empty if its kind says all.
    """

    kind: ProblemKind
    message: str
    index: str = ""
    advice: str = ""


@dataclass(frozen=True, slots=True)
class IndexHealth:
    """State of a derived index.

    Attributes:
        generation: the current one; 0 before the first is built.
        built: whether it exists; if not, the next worker process builds it.
        lag: changes of the store that it has still to apply.
    """

    generation: int
    built: bool
    lag: int


@dataclass(frozen=True, slots=True)
class KnowledgeBaseHealth:
    """Health of a knowledge base.

    Attributes:
        name: its name.
        place: where it is.
        format: schema version of its store; 0 if the store cannot be read.
        documents: number of documents.
        chunks: number of chunks.
        vectors: number of chunks with a vector; None where counting would take long.
        vectors_in: where they are searched, see `RAGConfig.vectors`.
        words_in: where words are searched, see `RAGConfig.lexical`.
        graph_in: where its graph is, see `RAGConfig.graph`.
        embedder: id of the model that makes its vectors, or empty.
        embedding_config: configuration that recreates that model, or empty.
        indexes: by name.
        unfinished_jobs: number of jobs that are not done yet.
        holder: its worker process, or None.
        leader: the process that works for it on any machine that shares its store, or empty.
        problems: those found.
    """

    name: str
    place: StorePlace
    format: int
    documents: int
    chunks: int
    vectors: int | None
    embedder: str
    embedding_config: dict[str, str] = field(default_factory=dict[str, str])
    vectors_in: str = "auto"
    words_in: str = "tantivy"
    graph_in: str = "kuzu"
    indexes: dict[str, IndexHealth] = field(default_factory=dict[str, IndexHealth])
    unfinished_jobs: int = 0
    holder: Holder | None = None
    leader: str = ""
    problems: tuple[HealthProblem, ...] = ()

    @property
    def folder(self) -> Path:
        """The folder of its indexes, which has its store, too, unless that is in a database."""
        return self.place.folder


async def examine(entry: CatalogueEntry) -> KnowledgeBaseHealth:
    """Examine a knowledge base: its store, its indexes, and the status that its owner reports.

    Indexes are opened only while no process works on them. This may take some seconds, and a minute if all of
    them hang.
    """
    health = await to_thread.run_sync(_examine_entry, entry)
    owner = OwnerClient(entry.folder, settings=PeerSettings(), digest="")
    status = await owner.status() if health.holder is not None else None
    if status is not None and status.problem:
        found = HealthProblem("work-stopped", f"{health.holder} says: {status.problem}")
    elif status is None and (holder := await to_thread.run_sync(holder_of, entry.folder)) and holder.since:
        found = _no_answer_problem(holder)
    else:
        return health
    return replace(health, problems=(*health.problems, found))


def _no_answer_problem(holder: Holder) -> HealthProblem:
    if holder.version != loom_version():
        message = f"{holder} holds it, and runs version {holder.version}, not {loom_version()}."
        return HealthProblem("owner-version", message)
    return HealthProblem("owner-silent", f"{holder} holds it, and does not answer.")


def _examine_entry(entry: CatalogueEntry) -> KnowledgeBaseHealth:
    health = KnowledgeBaseHealth(
        name=entry.name,
        place=entry.place,
        format=0,
        documents=entry.documents,
        chunks=entry.chunks,
        vectors=None,
        embedder=entry.embedder,
        embedding_config=entry.embedding_config,
        holder=holder_of(entry.folder),
    )
    if entry.place.database:
        if entry.problem:
            return replace(health, problems=(HealthProblem("newer", f"{entry.problem.capitalize()}."),))
        with closing(open_store(entry.place)) as store:
            health, dimension = _with_shared_record(health, store)
        return replace(health, problems=(*_of_indexes(health, dimension), *_of_servers(health)))
    path = entry.place.file
    if reason := describe_problem(path):
        kind = "emptied" if is_emptied(path) else "inaccessible"
        return replace(health, problems=(HealthProblem(kind, f"It cannot be opened: {reason}."),))
    try:
        version = _format_of(path)
        if version > len(SCHEMA):
            newer = f"A newer Loom wrote it (format {version}; this one knows {len(SCHEMA)})."
            return replace(health, format=version, problems=(HealthProblem("newer", newer),))
        health, dimension = _with_record(replace(health, format=version))
    except (sqlite3.Error, ValueError) as error:
        unread = HealthProblem("damaged", f"Its store cannot be read ({error}).")
        return replace(health, problems=(unread,))
    return replace(health, problems=(*_of_indexes(health, dimension), *_of_servers(health)))


def _of_indexes(health: KnowledgeBaseHealth, dimension: int) -> Iterator[HealthProblem]:
    there: dict[str, int] = {}
    for name, index in health.indexes.items():
        if name in {"remote", "remote_words", "remote_graph"}:
            continue
        if index.built and any(health.folder.glob(f"{name}-{index.generation}*")):
            there[name] = index.generation
        elif index.built:
            yield HealthProblem("index-gone", f"Its index of {name} is missing.", name)
    with lock_of(health.folder).block_acquirers() as is_idle:
        if is_idle:
            damaged = find_damaged_indexes(health.folder, there, dimension=dimension, seconds=_PROBE_SECONDS)
            for name, reason in damaged:
                message = f"Its index of {name} is damaged: {reason.rstrip('.')}."
                yield HealthProblem("index-damaged", message, name)


def _of_servers(health: KnowledgeBaseHealth) -> Iterator[HealthProblem]:
    """Ask the servers that hold vectors, words or the graph, if there are any, whether they have all."""
    if health.format != len(SCHEMA):
        return
    from loom_core.knowledge.indexes.lexical import RemoteLexicalIndex
    from loom_core.knowledge.indexes.remote_graph import RemoteGraph
    from loom_core.knowledge.indexes.remote_vectors import RemoteVectors

    with closing(open_store(health.place, read_only=True)) as store:
        if health.vectors_in not in VECTORS.local:
            vectors = RemoteVectors(store, health.folder, health.vectors_in)
            yield from _of_server(vectors, health, "vectors", health.vectors or 0)
        if health.words_in not in LEXICAL.local:
            words = RemoteLexicalIndex(store, health.folder, health.words_in)
            yield from _of_server(words, health, "passages", health.chunks)
        if health.graph_in not in GRAPH.local:
            yield from _of_graph_server(RemoteGraph(store, health.folder, health.graph_in), health)


def _of_server(
    index: RemoteVectors | RemoteLexicalIndex, health: KnowledgeBaseHealth, what: str, expected: int
) -> Iterator[HealthProblem]:
    state = health.indexes.get(index.name)
    try:
        stored = index.ask(lambda opened: opened.count())
    except LoomError as error:
        if isinstance(error, StoreUnavailableError | ConfigError):
            yield HealthProblem("database-away", error.message, index.name, error.advice)
        elif state is not None and state.built:
            yield HealthProblem("index-damaged", error.message, index.name)
    else:
        if state is not None and state.built and not state.lag and stored != expected:
            message = f"{index.setting} has {stored:,} {what}, not {expected:,}."
            yield HealthProblem("index-damaged", message, index.name)
    finally:
        index.close()


def _of_graph_server(index: RemoteGraph, health: KnowledgeBaseHealth) -> Iterator[HealthProblem]:
    state = health.indexes.get(index.name)
    is_whole = state is not None and state.built and not state.lag
    try:
        difference = index.find_difference()
    except (StoreUnavailableError, ConfigError) as error:
        yield HealthProblem("graph-away", error.message, advice=error.advice)
    except IndexDamagedError as error:
        if is_whole:
            yield HealthProblem("index-damaged", error.message, index.name)
    else:
        if difference and is_whole:
            yield HealthProblem("index-damaged", f"{index.setting}: {difference}.", index.name)
    finally:
        index.close()


def _format_of(record: Path) -> int:
    with closing(sqlite3.connect(f"{record.as_uri()}?mode=ro", uri=True, timeout=1.0)) as db:
        return int(db.execute("PRAGMA user_version").fetchone()[0])


def _with_record(health: KnowledgeBaseHealth) -> tuple[KnowledgeBaseHealth, int]:
    """Complete the health from the store; return it with the dimension of the vectors."""
    with closing(sqlite3.connect(f"{health.place.file.as_uri()}?mode=ro", uri=True, timeout=1.0)) as db:
        last = db.execute("SELECT seq FROM sqlite_sequence WHERE name = 'changes'").fetchone()
        head = int(last[0]) if last else 0
        states = db.execute("SELECT name, generation, watermark FROM indexes").fetchall()
        marks = ",".join("?" * len(_FINISHED))
        jobs = db.execute(f"SELECT COUNT(*) FROM jobs WHERE state NOT IN ({marks})", _FINISHED).fetchone()[0]
        vectors = None
        if db.execute("SELECT 1 FROM sqlite_master WHERE name = 'coverage'").fetchone():
            counted = db.execute("SELECT chunks - unembedded FROM coverage").fetchone()
            vectors = int(counted[0]) if counted else 0
        told = db.execute("SELECT value FROM meta WHERE name = 'dimension'").fetchone()
        places = dict(
            db.execute("SELECT name, value FROM meta WHERE name IN ('vectors', 'lexical', 'graph')")
        )
    read = replace(
        health,
        vectors=vectors,
        vectors_in=places.get("vectors", VECTORS.local[0]),
        words_in=places.get("lexical", LEXICAL.local[0]),
        graph_in=places.get("graph", GRAPH.local[0]),
        indexes={
            name: IndexHealth(generation, watermark >= 0, head - max(0, watermark))
            for name, generation, watermark in states
        },
        unfinished_jobs=jobs,
    )
    return read, int(told[0]) if told and told[0] else 0


def _with_shared_record(
    health: KnowledgeBaseHealth, store: KnowledgeStore
) -> tuple[KnowledgeBaseHealth, int]:
    """Complete the health from a store in a database; return it with the dimension of the vectors."""
    head = store.changes.head()
    states = {name: store.changes.state(name) for name in get_args(IndexName)}
    marks = ",".join("?" * len(_FINISHED))
    jobs = f"SELECT COUNT(*) FROM jobs WHERE state NOT IN ({marks})"
    holder = None if store.sharing is None else store.sharing.lease.holder()
    read = replace(
        health,
        format=len(SCHEMA),
        vectors=store.vectors.coverage()[0],
        vectors_in=store.get("vectors") or VECTORS.local[0],
        words_in=store.get("lexical") or LEXICAL.local[0],
        graph_in=store.get("graph") or GRAPH.local[0],
        indexes={
            name: IndexHealth(state.generation, state.built, head - max(0, state.watermark))
            for name, state in states.items()
            if state.generation
        },
        unfinished_jobs=store.database.row(jobs, _FINISHED)[0],
        leader="" if holder is None else holder.title,
    )
    return read, int(store.get("dimension") or 0)


def find_damaged_indexes(
    folder: Path, generations: Mapping[str, int], *, dimension: int, seconds: float
) -> Iterator[tuple[str, str]]:
    """Find indexes that do not open, with the reason; engines are tried in child processes.

    No process may be working on them: hold `ProcessLock.block_acquirers` meanwhile.

    Args:
        folder: where they are.
        generations: the current generation of each index, by name.
        dimension: length of the vectors.
        seconds: time limit for each index.
    """
    from loom_core.knowledge.indexes.engines.probe import probe_kuzu, probe_tantivy

    for name, generation in generations.items():
        path = folder / f"{name}-{generation}"
        match name:
            case "words":
                reason = probe_tantivy(path, timeout=seconds)
            case "graph":
                reason = probe_kuzu(path, timeout=seconds)
            case "chroma":
                reason = _wrong_chroma(path, dimension, seconds)
            case "links":
                reason = _wrong_links(path)
            case _:
                reason = _wrong_vectors(path, dimension)
        if reason is not None:
            yield name, reason


def _wrong_chroma(path: Path, dimension: int, seconds: float) -> str | None:
    """Why Chroma cannot open a copy (opening writes); an index that is too large to copy is skipped."""
    from loom_core.knowledge.indexes.engines.probe import probe_chroma

    if sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) > _MOST_COPIED:
        return None
    with TemporaryDirectory(prefix="loom-doctor-") as folder:
        copy = Path(folder) / path.name
        shutil.copytree(path, copy)
        reason = probe_chroma(copy, dimension=dimension, timeout=seconds)
    return reason and reason.replace(str(copy), str(path))


def _wrong_links(path: Path) -> str | None:
    """Why the arrays of links cannot be opened; they cannot hang."""
    from loom_core.knowledge.indexes.engines.link_arrays import LinkArrays

    try:
        LinkArrays(path).verify()
    except IndexDamagedError as error:
        return error.message.rstrip(".")
    return None


def _wrong_vectors(path: Path, dimension: int) -> str | None:
    """Why the flat vector files cannot be opened; they cannot hang."""
    from loom_core.knowledge.indexes.language_vectors import LanguageVectors

    try:
        LanguageVectors(dimension, path, writable=False).close()
    except IndexDamagedError as error:
        return error.message.rstrip(".")
    return None
