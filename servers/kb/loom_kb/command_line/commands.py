"""The commands that are not servers: add, query, eval, list, remove, stats, jobs, aliases, and others."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.knowledge.ingest.near_duplicates import percent
from loom_core.knowledge.uris import display_uri, uri_of
from loom_core.server.cli.command_line import parse_filters
from loom_core.server.cli.console import emphasize, out, out_json, say, strong
from loom_core.server.cli.health import fact_lines
from loom_core.server.search.citations import citation
from loom_kb.command_line.folder_sync import sync
from loom_kb.command_line.job_progress import LEFT_OUT, work_until_done, work_until_idle
from loom_kb.command_line.maintenance import (
    check,
    export_archive,
    import_archive,
    move,
    next_embedder,
    rebuild,
    shard,
)
from loom_kb.graph_pages.page import graph
from loom_kb.job_facts import all_notes, all_problems, info_of_parts
from loom_kb.language_model import run_with_confirmation
from loom_kb.models import OverviewInfo, QueryResult, RemoveResult
from loom_kb.service import KnowledgeService
from loom_kb.texts import ASK_COMMAND, coverage_line, describe_holder, extraction_of, job_text, overview_text

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from loom_core.knowledge.rag.entity_aliases import AliasGroup, AliasReason, EntityAliases
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.rag.requests import AddRequest
    from loom_core.knowledge.retrieval.config import SearchOptions
    from loom_core.knowledge.retrieval.patterns import RAGAnswer
    from loom_core.knowledge.store.place import StorePlace
    from loom_kb.settings import Settings

__all__ = ["run_command"]

_ALIAS_PAGE = 200
_PAGE = 500
_END_SECONDS = 5.0  # for connections to be closed
_TOLD = {
    "acronym": "is an acronym",
    "also_called": "is said to be another name",
    "translation": "may be a translation",
    "spelling": "is another spelling",
    "decision": "was merged by you",
}


def run_command(args: argparse.Namespace, settings: Settings) -> int:
    """Run a parsed command; returns the exit code."""
    commands = {
        "add": _add,
        "query": _query,
        "eval": _evaluate,
        "list": _list,
        "remove": _remove,
        "sync": sync,
        "jobs": _jobs,
        "duplicates": _duplicates,
        "overview": _overview,
        "graph": graph,
        "stats": _stats,
        "aliases": _aliases,
        "demo": _demo,
        "check": check,
        "move": move,
        "shard": shard,
        "rebuild": rebuild,
        "export": export_archive,
        "import": import_archive,
    }
    # For `rebuild`, --embedder is the embedder to change to, not the current one.
    rebuilds = args.command == "rebuild"
    service = KnowledgeService(
        replace(settings, embedder="auto", vectors="", lexical="", graph="") if rebuilds else settings
    )

    async def run() -> int:
        try:
            return await commands[args.command](service, args)
        finally:
            with anyio.move_on_after(_END_SECONDS, shield=True):
                await service.library.close_connections()

    try:
        return anyio.run(run)
    finally:
        service.library.close()


async def _add(service: KnowledgeService, args: argparse.Namespace) -> int:
    metadata: dict[str, Any] = {"tags": args.tag} if args.tag else {}
    missing: list[Path] = []
    if args.paths == [Path("-")]:
        text = await to_thread.run_sync(_standard_input)
        titles = [args.title] if args.title else []
        request: AddRequest = service.request_texts([text], titles=titles, metadata=metadata)
    elif urls := [path for path in args.paths if isinstance(path, str)]:
        if len(urls) < len(args.paths):
            raise InvalidInputError(
                "One `add` takes files or web pages, not both.", advice="Run `add` twice."
            )
        request = await service.request_pages(urls, metadata=metadata)
    elif args.paths:
        missing = [path for path in args.paths if not await anyio.Path(path).exists()]
        there = [path for path in args.paths if path not in missing]
        # If no path exists, request all of them: that raises an error.
        request = await service.request_files(
            there or missing, include=args.include, exclude=args.exclude, metadata=metadata
        )
    else:
        await service.library.open(args.kb)
        parts = await service.writable_parts(args.kb)
        unfinished = [job for part in parts if (job := await to_thread.run_sync(part.jobs.next)) is not None]
        if not unfinished:
            for part in parts:
                await work_until_idle(part)
            say("There is no unfinished job.")
            return 0
        id_ = unfinished[0].id
        its = [part for part in parts if await to_thread.run_sync(part.jobs.get, id_) is not None]
        return await work_until_done(its, id_, kb=args.kb, as_json=args.json)

    async def add(confirm: bool) -> tuple[list[GraphRAGKnowledgeBase], str]:
        asked = replace(request, confirm=confirm)
        return await service.add(asked, source=args.kb, description=args.description)

    parts, job = await run_with_confirmation(add, yes=args.yes)
    code = await work_until_done(parts, job, kb=args.kb, as_json=args.json)
    for path in missing:
        say(f"There is no file or folder {path}.")
    return code or (LEFT_OUT if missing else 0)


def _standard_input() -> str:
    from loom_core.knowledge.ingest.loaders import decode

    return decode(sys.stdin.buffer.read())[0]


async def _query(service: KnowledgeService, args: argparse.Namespace) -> int:
    result = await service.query(
        " ".join(args.question),
        source=args.kb,
        filters=parse_filters(args.filter),
        limit=args.limit,
        strategy=args.strategy,
        options=_search_options(args),
    )
    if args.json:
        out_json(result)
    else:
        _print_answer(result, detailed=args.detailed)
    return 0


async def _evaluate(service: KnowledgeService, args: argparse.Namespace) -> int:
    from loom_kb.command_line.evaluation import evaluate

    return await evaluate(service, args, _search_options(args))


def _search_options(args: argparse.Namespace) -> SearchOptions:
    from loom_core import plugins
    from loom_core.knowledge.retrieval.config import SearchOptions

    return SearchOptions(
        diversity=args.diversity,
        expand_to=args.expand,
        reranker=plugins.create("reranker", args.rerank) if args.rerank else None,
        thorough=args.thorough or None,
    )


def _print_answer(result: QueryResult, *, detailed: bool) -> None:
    """Print the passages of an answer, after a caution if they match poorly."""
    if note := result.match.note():
        out(note)
        if result.passages:
            out()
    for passage in result.passages:
        out(strong(citation(passage)))
        if detailed:
            out("    scores: " + ", ".join(f"{name} {value:.3g}" for name, value in passage.scores.items()))
            out("    why: " + "; ".join(passage.why))
        for line in emphasize(passage.text, passage.answer_sentence).strip().splitlines():
            out(f"    {line}")
        out()
    for note in filter(None, [coverage_line(result.embedded, result.total), *result.notes]):
        say(note)


async def _list(service: KnowledgeService, args: argparse.Namespace) -> int:
    if args.kb is None:
        entries = await to_thread.run_sync(service.library.list)
        if args.json:
            listed = [
                {
                    "name": e.name,
                    "description": e.source.description,
                    "documents": e.documents,
                    "passages": e.chunks,
                    "extraction": extraction_of(e.llm),
                }
                for e in entries
            ]
            unusable = [
                {"name": e.name, "folder": str(e.folder), "problem": e.problem}
                for e in await to_thread.run_sync(service.library.unusable)
            ]
            out_json({"sources": listed, "unusable": unusable})
            return 0
        for entry in entries:
            line = f"{strong(entry.name)}  {entry.documents:,} documents, {entry.chunks:,} passages"
            out(f"{line}, entities by {extraction_of(entry.llm)}" if entry.llm else line)
            if entry.source.description:
                out(f"    {entry.source.description}")
        unusable = await service.unusable()
        for line in unusable:
            say(line)
        if not entries and not unusable:
            say("There is no knowledge base yet. Make one: loom-kb add FOLDER")
        return 0
    documents: list[dict[str, object]] = []
    cursor = 0
    while rows := await service.list_documents(args.kb, limit=_PAGE, cursor=cursor):
        cursor = rows[-1][0]
        for _, row in rows:
            documents.append({"id": row.id, "title": row.title, "uri": row.uri, "length": row.length})
            if not args.json:
                title = row.title or "untitled"
                out(f"{row.id}  {title}  ({display_uri(row.uri)}, {row.length:,} characters)")
    if args.json:
        out_json({"documents": documents})
    return 0


async def _remove(service: KnowledgeService, args: argparse.Namespace) -> int:
    if args.all == bool(args.ids):
        raise InvalidInputError("Say what to remove.", advice="Give ids, URIs or paths, or --all.")
    if args.all:
        await service.library.delete(args.kb)
        if args.json:
            out_json({"removed": args.kb})
        else:
            out(f"Removed the knowledge base {args.kb!r}.")
        return 0
    await service.library.open(args.kb)
    by_uri = {uri_of(Path(id_)): id_ for id_ in args.ids}
    removed, _ = await service.remove([*args.ids, *by_uri], source=args.kb)
    found = {name for info in removed for name in (info.id, info.uri, by_uri.get(info.uri, ""))}
    unknown = [id_ for id_ in args.ids if id_ not in found]
    if args.json:
        out_json(RemoveResult(removed=removed, unknown=unknown))
    else:
        for info in removed:
            out(f"removed {info.id}  {info.title or 'untitled'}  ({display_uri(info.uri)})")
        for id_ in unknown:
            say(f"unknown: {id_}")
    return 1 if unknown else 0


async def _stats(service: KnowledgeService, args: argparse.Namespace) -> int:
    catalogue = service.library.catalogue
    parts = await service.library.parts(args.kb)
    shards = await to_thread.run_sync(catalogue.shards, args.kb)
    places = [place for _, place in shards] or [catalogue.place(args.kb)]

    def collect(knowledge_base: GraphRAGKnowledgeBase, place: StorePlace) -> dict[str, object]:
        documents, passages, characters = knowledge_base.documents.counts()
        entities, relations, mentions = knowledge_base.graph.counts()
        return {
            "name": args.kb,
            **({"shards": 1} if shards else {}),
            "folder": str(place.folder),
            **({"database": place.database} if place.database else {}),
            "description": knowledge_base.description,
            "documents": documents,
            "passages": passages,
            "characters": characters,
            "duplicates": knowledge_base.duplicates.count(),
            "languages": knowledge_base.documents.languages(),
            "vectors": knowledge_base.coverage()[0],
            "vectors_in": knowledge_base.vectors,
            "words_in": knowledge_base.lexical,
            **_graph_facts(knowledge_base),
            "embedder": knowledge_base.embedder_id,
            **next_embedder(knowledge_base),
            "extraction": extraction_of(knowledge_base.extraction_model),
            "entities": entities,
            "relations": relations,
            "mentions": mentions,
            "strategy": knowledge_base.strategy,
            "filters": list(knowledge_base.supported_filters),
            "index_lag": knowledge_base.index_lag(),
            "held_by": describe_holder(knowledge_base.holder()) or None,
            **({"worked_on_by": knowledge_base.worker.find_leader() or None} if place.database else {}),
            "bytes": _bytes_in(place.folder),
        }

    each = [await to_thread.run_sync(collect, part, place) for part, place in zip(parts, places, strict=True)]
    numbers = each[0] if len(each) == 1 else _add_facts(each)
    if args.json:
        out_json(numbers)
        return 0
    for line in fact_lines(numbers):
        out(line)
    return 0


def _bytes_in(folder: Path) -> int:
    """Return the size of all files of a folder, from which other processes may remove some meanwhile."""
    size = 0
    for parent, _, names in os.walk(folder):
        for name in names:
            with suppress(OSError):
                size += (Path(parent) / name).stat().st_size
    return size


def _add_facts(facts: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Add the facts about shards: sums of numbers, all of what else differs."""
    added: dict[str, Any] = {}
    for name in dict.fromkeys(name for each in facts for name in each):
        values = [each[name] for each in facts if each.get(name) is not None]
        if values and all(isinstance(value, dict) for value in values):
            added[name] = _add_facts(values)
        elif values and all(isinstance(value, int) for value in values):
            added[name] = sum(values)
        elif values and all(isinstance(value, list) for value in values):
            added[name] = list(dict.fromkeys(one for value in values for one in value))
        else:
            different = list(dict.fromkeys(values))
            added[name] = different if len(different) > 1 else next(iter(different), None)
    return added


def _graph_facts(knowledge_base: GraphRAGKnowledgeBase) -> dict[str, object]:
    problem = knowledge_base.graph_problem()
    return {"graph_in": knowledge_base.graph_setting, **({"graph_problem": problem} if problem else {})}


async def _overview(service: KnowledgeService, args: argparse.Namespace) -> int:
    knowledge_base = await service.library.get(args.kb)
    if args.question:
        return await _answer_by_topics(knowledge_base, args)
    overview = await knowledge_base.overview(
        limit=args.topics, sentences=args.sentences, filters=parse_filters(args.filter)
    )
    if args.json:
        out_json(OverviewInfo.of(args.kb, overview))
    else:
        out(overview_text(args.kb, overview))
    return 0


async def _answer_by_topics(knowledge_base: GraphRAGKnowledgeBase, args: argparse.Namespace) -> int:
    if args.filter:
        raise InvalidInputError("--question is about all documents.", advice="Leave --filter out.")
    from loom_core.knowledge.rag.map_reduce import MapReduceRAG
    from loom_core.knowledge.retrieval.patterns import citation_numbers

    model = knowledge_base.language_model
    if model is None:
        raise InvalidInputError(
            "There is no language model to answer with.",
            advice="Name one, such as --llm deepseek, or leave --question out: an overview needs none.",
        )
    rag = MapReduceRAG(model, knowledge_base, topics=args.topics)

    async def answer(confirm: bool) -> RAGAnswer:
        return await rag.run(args.question, confirm=confirm)

    found = await run_with_confirmation(answer, yes=args.yes)
    cited = citation_numbers(found.answer)
    if args.json:
        out_json({"answer": found.answer, "passages": found.passages, "notes": found.notes})
        return 0
    out(found.answer)
    out()
    for number in cited:
        if 1 <= number <= len(found.passages):
            passage = found.passages[number - 1]
            metadata = passage["metadata"]
            place = metadata.get("title") or display_uri(metadata["uri"])
            out(f"[{number}] {place} [{passage['chunk_id']}]")
    for note in found.notes:
        say(note)
    return 0


async def _demo(service: KnowledgeService, args: argparse.Namespace) -> int:
    from loom_kb.command_line.demo import demo

    return await demo(service, as_json=args.json)


async def _jobs(service: KnowledgeService, args: argparse.Namespace) -> int:
    """List the newest jobs, or show one in full."""
    if args.id is None:
        if args.cancel:
            raise InvalidInputError("No job is named.", advice="Write: loom-kb jobs ID --cancel")
        newest = await service.jobs(limit=20)
        if args.json:
            out_json(newest)
        else:
            out("\n".join(job_text([info], ask=ASK_COMMAND) for info in newest.jobs) or "There are no jobs.")
        return 0
    found = await service.job(args.id)
    if args.cancel:
        for part, _ in found:
            await part.cancel_job(args.id)
        found = await service.job(args.id)
    info = await to_thread.run_sync(info_of_parts, found)
    problems = [line for part, job in found for line in all_problems(part.jobs, job)]
    notes = [line for part, job in found for line in all_notes(part.jobs, job)]
    if args.json:
        every = {"problems": problems, "notes": notes, "next_cursor": None}
        out_json(info.model_copy(update=every))
        return 0
    out(job_text([info.model_copy(update={"problems": [], "notes": []})], ask=""))
    for error in dict.fromkeys(job.error for _, job in found if job.error):
        out(f"  failed: {error}")
    for problem in problems:
        out(f"  {problem}")
    for note in notes:
        out(f"  note: {note}")
    return 0


async def _duplicates(service: KnowledgeService, args: argparse.Namespace) -> int:
    """List duplicate and near-duplicate documents."""
    knowledge_base = await service.library.get(args.kb)
    if await to_thread.run_sync(knowledge_base.duplicates.pending_comparisons, 1):
        say("Some documents have not been compared yet; run this again when the work is done.")
    groups = await to_thread.run_sync(knowledge_base.duplicates.groups)
    if args.json:
        listed = [
            {
                "likeness": group.likeness,
                "documents": [{"id": id_, "uri": uri} for id_, uri in group.documents],
            }
            for group in groups
        ]
        out_json({"groups": listed})
        return 0
    for group in groups:
        same = "the same text" if group.likeness == 1 else f"{percent(group.likeness)} the same or more"
        out(strong(f"{len(group.documents)} documents, {same}"))
        for id_, uri in group.documents:
            out(f"    {id_}  {display_uri(uri)}")
    if not groups:
        out("There are no duplicates.")
    return 0


async def _aliases(service: KnowledgeService, args: argparse.Namespace) -> int:
    """List, merge, split or hide entities; returns the exit code."""
    knowledge_base = await service.library.get(args.kb)
    known = knowledge_base.aliases
    if args.hide or args.unhide or args.hidden:
        shown = await to_thread.run_sync(_hide, known, args)
        knowledge_base.worker.wake()
        return 0 if shown else 1
    if args.merge or args.split or args.undecide:
        decided = await to_thread.run_sync(_decide, known, args)
        knowledge_base.worker.wake()
        return 0 if decided else 1
    if args.suggested:
        await to_thread.run_sync(_suggest, known, args)
    elif args.names:
        groups = [await to_thread.run_sync(known.group_of, name) for name in args.names]
        _show(groups, as_json=args.json)
    else:
        await to_thread.run_sync(_list_aliases, known, args)
    return 0


def _decide(known: EntityAliases, args: argparse.Namespace) -> bool:
    """Merge, split, or undo a decision; return False if there is none to undo."""
    if len(args.names) != 2:
        raise InvalidInputError(
            f"Two names are needed, not {len(args.names)}.",
            advice='Write for example: loom-kb aliases --merge "System Admin" 系统管理员',
        )
    name, other = args.names
    if args.merge:
        groups = [known.merge(name, other)]
    elif args.split:
        groups = list(known.split(name, other))
    elif known.clear_decision(name, other):
        # There may be a decision about a name that no document uses any more.
        groups = list(dict.fromkeys(filter(None, map(partial(_group_of, known), args.names))))
    else:
        say("There is no decision about these two names.")
        return False
    _show(groups, as_json=args.json)
    return True


def _hide(known: EntityAliases, args: argparse.Namespace) -> bool:
    """Hide or show entities, and list the hidden names; return False if one to show was not hidden."""
    if not args.hidden and not args.names:
        raise InvalidInputError(
            "No name is given.", advice='Write for example: loom-kb aliases --hide "See also"'
        )
    for name in args.names if args.hide else ():
        names = known.hide(name)
        if not args.json:
            out(f"hidden: {' = '.join(names)}")
    missing = [name for name in args.names if args.unhide and not known.unhide(name)]
    for name in missing:
        say(f"{name!r} was not hidden.")
    if args.json:
        out_json({"hidden": known.hidden()})
    elif args.hidden:
        for name in known.hidden():
            out(name)
        if not known.hidden():
            say("No entity is hidden.")
    return not missing


def _group_of(known: EntityAliases, name: str) -> AliasGroup | None:
    try:
        return known.group_of(name)
    except NotFoundError:
        return None


def _suggest(known: EntityAliases, args: argparse.Namespace) -> None:
    reasons = known.suggestions()
    if args.json:
        out_json({"suggestions": [asdict(reason) for reason in reasons]})
        return
    for reason in reasons:
        out(_format_reason(reason))
    advice = "Merge two of them: loom-kb aliases --merge NAME OTHER"
    say(advice if reasons else "There is nothing to suggest.")


def _show(groups: list[AliasGroup], *, as_json: bool) -> None:
    if as_json:
        out_json({"groups": [asdict(group) for group in groups]})
        return
    for group in groups:
        out(strong(" = ".join(group.names)))
        for reason in group.reasons:
            out(f"    {_format_reason(reason)}")
    if not groups:
        say("No entity has several names yet.")


def _format_reason(reason: AliasReason) -> str:
    sure = "" if reason.kind == "decision" else f" ({reason.confidence:.2f})"
    said = f": “{reason.evidence}” [{reason.passage_id}]" if reason.evidence else ""
    return f"{reason.other} {_TOLD[reason.kind]} of {reason.name}{sure}{said}"


def _list_aliases(known: EntityAliases, args: argparse.Namespace) -> None:
    groups: list[AliasGroup] = []
    after: int | None = 0
    while after is not None:
        found, after = known.groups(limit=_ALIAS_PAGE, after=after)
        groups += found
    written = known.in_several_scripts()
    if args.json:
        out_json({"groups": [asdict(group) for group in groups], "in_several_scripts": written})
        return
    _show(groups, as_json=False)
    if written:
        out(strong("Same name in another script"))
    for spellings in written:
        out(f"    {' = '.join(spellings)}")
