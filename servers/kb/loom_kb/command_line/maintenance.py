"""The maintenance commands: check, move, shard, rebuild, export, import."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.errors import InvalidInputError, NotFoundError, StoreUnavailableError
from loom_core.knowledge.store.opening import has_store
from loom_core.knowledge.store.place import place_in
from loom_core.server.cli.console import ProgressBar, out, out_json, say, strong
from loom_core.server.cli.database_option import after_move, database_setting, move_target
from loom_kb.command_line.job_progress import work_until_done
from loom_kb.language_model import run_with_confirmation

if TYPE_CHECKING:
    import argparse
    from collections.abc import Awaitable, Callable

    from loom_core.knowledge.maintenance.finding import CheckReport
    from loom_core.knowledge.maintenance.salvage import SalvageReport
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.store.changes import IndexName
    from loom_core.knowledge.store.place import StorePlace
    from loom_kb.service import KnowledgeService

__all__ = ["check", "export_archive", "import_archive", "move", "next_embedder", "rebuild", "shard"]

_NAMED = 20  # documents that were lost


async def check(service: KnowledgeService, args: argparse.Namespace) -> int:
    """Run `loom-kb check`; return 0 if all is sound (or repaired), 1 if not, 3 if documents were lost."""
    name: str = args.kb
    whole = service.library.catalogue.place(name)
    if shards := await to_thread.run_sync(service.library.catalogue.shards, name):
        opened = {shard.name: partial(service.library.open_shard, shard, place) for shard, place in shards}
        places = [place for _, place in shards]
    else:
        opened, places = {name: partial(service.library.get, name)}, [whole]
    codes = [
        await _check_one(each, place, opening, args)
        for (each, opening), place in zip(opened.items(), places, strict=True)
    ]
    return 1 if 1 in codes else max(codes)


async def _check_one(
    name: str,
    place: StorePlace,
    opening: Callable[[], Awaitable[GraphRAGKnowledgeBase]],
    args: argparse.Namespace,
) -> int:
    """Check a knowledge base, or a shard; returns as `check`."""
    from loom_core.knowledge.maintenance.salvage import check_file, salvage

    if not await to_thread.run_sync(has_store, place):
        raise NotFoundError(f"There is no knowledge base {name!r}.", advice="`loom-kb list` shows them.")
    done: list[str] = []
    lost: list[str] = []
    damage = [] if place.database else await to_thread.run_sync(check_file, place.file)
    if damage and args.repair:
        saved = await to_thread.run_sync(salvage, place.folder)
        done, lost = _describe_saved(saved), _describe_lost(saved)
        damage = await to_thread.run_sync(check_file, place.file)
    if damage:
        from loom_core.knowledge.maintenance.finding import CheckReport

        report = CheckReport(checked=["file"], findings=damage)
    else:
        knowledge_base = await opening()
        if done:  # the salvaged documents are a job now
            await knowledge_base.worker.drain()
        report = await knowledge_base.check(repair=args.repair)
        if not place.database:
            report.checked.insert(0, "file: a whole SQLite database")
    report.repaired[:0] = done
    report.notes[:0] = lost
    if args.json:
        out_json({"name": name, "sound": report.sound, **asdict(report)})
    else:
        _print_report(name, report, repair=args.repair)
    if not report.sound:
        return 1
    return 3 if lost else 0


def _describe_saved(saved: SalvageReport) -> list[str]:
    """Describe what was salvaged of a damaged store."""
    if saved.kept is None:
        return ["the SQLite indexes of the store were rebuilt; nothing is lost"]
    lines = [
        f"{saved.documents:,} documents were salvaged from the damaged store with {saved.vectors:,} "
        f"vectors, and {saved.jobs:,} of unfinished jobs; the damaged file is kept as {saved.kept}"
    ]
    if saved.reloaded:
        lines.append(f"{len(saved.reloaded):,} could not be read, and are loaded again from their files")
    return lines


def _describe_lost(saved: SalvageReport) -> list[str]:
    """Describe what could not be salvaged of a damaged store."""
    lines: list[str] = []
    if saved.lost:
        more = len(saved.lost) - _NAMED
        lines.append(
            f"{len(saved.lost):,} documents could not be read and are lost: {', '.join(saved.lost[:_NAMED])}"
            + (f", and {more:,} more" if more > 0 else "")
        )
    if saved.incomplete:
        lines.append("more may be lost, as parts of the store cannot even be counted: add your files again")
    return lines


def _print_report(name: str, report: CheckReport, *, repair: bool) -> None:
    for line in report.checked:
        out(f"checked   {line}")
    for line in report.notes:
        out(f"note      {line}")
    for line in report.repaired:
        out(f"repaired  {line}")
    for finding in report.findings:
        out(f"wrong     {finding.text}")
    if report.sound:
        out(strong(f"{name}: no problems found."))
        return
    out(strong(f"{name}: {len(report.findings):,} problems found."))
    if not repair and any(finding.repair for finding in report.findings):
        say(f"`loom-kb check --repair --kb {name}` repairs what it can.")


async def move(service: KnowledgeService, args: argparse.Namespace) -> int:
    """Run `loom-kb move`: copy a knowledge base to a database, or back to files."""
    from loom_core.knowledge.maintenance.store_copy import copy_to_place

    source = service.library.catalogue.place(args.kb)
    if not await to_thread.run_sync(has_store, source):
        raise NotFoundError(f"There is no knowledge base {args.kb!r}.", advice="`loom-kb list` shows them.")
    database = move_target(args.to)
    target = place_in(service.settings.home, args.kb, database=database)
    bar = ProgressBar("copying and comparing", "rows")

    def show(done: int, total: int) -> None:
        bar.show(done // 2, total // 2)  # each row is copied and compared

    await to_thread.run_sync(partial(copy_to_place, source, target, progress=show))
    following = after_move(database)
    if args.json:
        out_json({"name": args.kb, "from": str(source), "to": str(target), "next": following})
    else:
        out(f"All rows of {source} are in {target} now, too; its indexes are built at the first use.")
        out(following)
    return 0


async def shard(service: KnowledgeService, args: argparse.Namespace) -> int:
    """Run `loom-kb shard`: split a knowledge base into shards, or delete what it had itself before."""
    from loom_core.knowledge.sources.splitting import SplitStep, delete_original, split_into_shards

    if args.delete_original:
        if args.into or args.to:
            raise InvalidInputError("--delete-original splits nothing.", advice="Give it without the others.")
        await to_thread.run_sync(delete_original, service.library.catalogue.place(args.kb))
        if args.json:
            out_json({"name": args.kb, "deleted": True})
        else:
            out(f"The documents that {args.kb!r} had before it was split are deleted; its shards have them.")
        return 0
    if not args.into:
        raise InvalidInputError("How many shards?", advice="Give --into N, such as --into 8.")
    bars: dict[SplitStep, ProgressBar] = {}

    def show(step: SplitStep, done: int, total: int) -> None:
        bars.setdefault(step, ProgressBar(f"{step:9}", "documents")).show(done, total)

    names = await split_into_shards(
        service.library,
        args.kb,
        count=args.into,
        databases=[database_setting(url) for url in args.to],
        progress=show,
    )
    following = f"loom-kb shard {args.kb} --delete-original"
    if args.json:
        out_json({"name": args.kb, "shards": names, "next": following})
    else:
        out(f"{args.kb!r} is split into {names[0]} to {names[-1]}, and stands for all of them.")
        out(f"What it had itself is still there, unused; `{following}` deletes it.")
    return 0


async def rebuild(service: KnowledgeService, args: argparse.Namespace) -> int:
    """Run `loom-kb rebuild`: rebuild indexes, passages or vectors."""
    knowledge_base = await service.library.get(args.kb)
    if args.embedder != "auto" and (args.index or args.all_from_text):
        raise InvalidInputError(
            "--embedder makes all vectors again, and nothing else.", advice="Give it without the others."
        )
    if args.index and args.all_from_text:
        raise InvalidInputError(
            "--all-from-text makes all passages and indexes again.", advice="Give it without --index."
        )
    if args.vectors or args.lexical or args.graph:
        if args.index or args.all_from_text or args.embedder != "auto":
            raise InvalidInputError(
                "--vectors, --lexical and --graph move an index, and nothing else.",
                advice="Give them without others.",
            )
        return await _move(knowledge_base, args)
    if args.embedder != "auto":
        return await _change_embedder(knowledge_base, args)
    if args.all_from_text:
        knowledge_base = await service.writable(args.kb)
        id_ = await run_with_confirmation(partial(_submit_rebuild, knowledge_base), yes=args.yes)
        bar = ProgressBar("rebuilding", "documents")

        def progress() -> None:
            job = knowledge_base.job(id_)
            bar.show(job.processed, job.total)

        await knowledge_base.worker.drain(progress=progress)
        job = await to_thread.run_sync(knowledge_base.job, id_)
        bar.show(job.processed, job.total, final=True)
        if args.json:
            out_json({"name": args.kb, "counts": job.counts})
        else:
            out(", ".join(f"{count:,} {state}" for state, count in sorted(job.counts.items())) or "nothing")
        return 3 if job.counts.get("failed") else 0
    indexes: list[IndexName] = args.index or ["words", "vectors", "graph"]
    bar = ProgressBar("rebuilding", "indexes")
    await knowledge_base.rebuild(indexes, progress=lambda: bar.show(0, len(indexes)))
    bar.show(len(indexes), len(indexes), final=True)
    if args.json:
        out_json({"name": args.kb, "rebuilt": list(indexes)})
    else:
        out(f"Rebuilt: {', '.join(indexes)}.")
    return 0


async def _submit_rebuild(knowledge_base: GraphRAGKnowledgeBase, confirm: bool) -> str:
    request = knowledge_base.rebuild_request(confirm=confirm)
    await knowledge_base.confirm_extraction(request)
    return await to_thread.run_sync(knowledge_base.submit, request)


async def _change_embedder(knowledge_base: GraphRAGKnowledgeBase, args: argparse.Namespace) -> int:
    from loom_core.embedding.registry import create_embedder

    bar = ProgressBar("embedding", "passages")
    before = knowledge_base.embedder_id

    def show() -> None:
        if knowledge_base.next_embedder():  # until it has taken over
            bar.show(*knowledge_base.reembedding_progress())

    await knowledge_base.change_embedder(create_embedder(args.embedder), progress=show)
    _, total = await to_thread.run_sync(knowledge_base.coverage)
    bar.show(total, total, final=True)
    if args.json:
        out_json({"name": args.kb, "before": before, "embedder": knowledge_base.embedder_id})
    else:
        out(f"The vectors were by {before}, and are by {knowledge_base.embedder_id} now.")
    return 0


async def _move(knowledge_base: GraphRAGKnowledgeBase, args: argparse.Namespace) -> int:
    places = await to_thread.run_sync(
        lambda: (knowledge_base.vectors, knowledge_base.lexical, knowledge_base.graph_setting)
    )
    wanted = {"vectors": args.vectors, "lexical": args.lexical, "graph": args.graph}
    moves = [
        (what, before, now)
        for what, before, now in zip(("vectors", "words", "graph"), places, wanted.values(), strict=True)
        if now
    ]
    await to_thread.run_sync(partial(knowledge_base.move, **wanted))
    bar = ProgressBar("moving", "keys")

    def progress() -> None:
        done, last = knowledge_base.moving_progress()
        if last:
            bar.show(done, last)

    await knowledge_base.worker.drain(progress=progress)
    if problem := knowledge_base.worker.problem or await to_thread.run_sync(knowledge_base.graph_problem):
        raise StoreUnavailableError(
            problem, advice="All stays where it was until it answers; a running server goes on by itself."
        )
    if args.json:
        out_json({"name": args.kb, "moved": {what: [before, now] for what, before, now in moves}})
    else:
        for what, before, now in moves:
            was, is_ = ("was in", "is in") if what == "graph" else ("were searched by", "are by")
            out(f"The {what} {was} {before}, and {is_} {now} now.")
    return 0


def next_embedder(knowledge_base: GraphRAGKnowledgeBase) -> dict[str, object]:
    """Return the embedder that is to take over, and its progress; empty without one. Blocks."""
    wanted = knowledge_base.next_embedder()
    return (
        {"next_embedder": wanted, "next_vectors": knowledge_base.reembedding_progress()[0]} if wanted else {}
    )


async def export_archive(service: KnowledgeService, args: argparse.Namespace) -> int:
    """Run `loom-kb export`: write a knowledge base to one file."""
    knowledge_base = await service.library.get(args.kb)
    bar = ProgressBar("writing  ", "documents")

    def write() -> dict[str, int]:
        manifest = knowledge_base.export(args.file, progress=bar.show)
        return {name: part.rows for name, part in manifest.parts.items()}

    rows = await to_thread.run_sync(write)
    size = args.file.stat().st_size
    bar.show(rows["documents.jsonl"], rows["documents.jsonl"], final=True)
    if args.json:
        out_json({"name": args.kb, "file": str(args.file), "bytes": size, "parts": rows})
    else:
        documents, vectors = rows["documents.jsonl"], rows["vectors.bin"]
        out(f"{args.file}: {documents:,} documents, {vectors:,} vectors, {size:,} bytes")
    return 0


async def import_archive(service: KnowledgeService, args: argparse.Namespace) -> int:
    """Run `loom-kb import`: read such a file into a knowledge base."""
    from loom_core.knowledge.maintenance.archive import ArchiveReader
    from loom_core.knowledge.rag.requests import DocumentsRequest

    archive = await to_thread.run_sync(ArchiveReader, args.file)
    try:
        name = args.kb or archive.manifest.name or "default"
        there = {entry.name: entry.documents for entry in await to_thread.run_sync(service.library.list)}
        if not args.kb and there.get(name):
            raise InvalidInputError(
                f"There is already a knowledge base {name!r} with {there[name]:,} documents.",
                advice="Give --kb NAME: a new one, or the one to import the documents into.",
            )
        knowledge_base = await service.writable(name, embedder=archive.manifest.embedder)
        # The amount is known only once the job runs.
        await knowledge_base.confirm_extraction(DocumentsRequest((), confirm=args.yes))
        bar = ProgressBar("reading  ", "documents")
        receive = partial(knowledge_base.import_archive, archive, progress=bar.show, confirm=args.yes)
        job = await to_thread.run_sync(receive)
    finally:
        archive.close()
    if archive.manifest.embedder and archive.manifest.embedder != knowledge_base.embedder_id:
        say(
            f"Its vectors are by {archive.manifest.embedder}, and those here by "
            f"{knowledge_base.embedder_id}: all imported passages are embedded again."
        )
    return await work_until_done([knowledge_base], job, kb=name, as_json=args.json)
