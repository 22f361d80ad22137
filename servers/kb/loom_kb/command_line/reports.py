"""The commands that tell what happened: jobs, duplicates."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.knowledge.ingest.near_duplicates import percent
from loom_core.knowledge.uris import shown
from loom_core.server.cli.console import out, out_json, say, strong
from loom_kb.job_facts import all_notes, all_problems, job_info
from loom_kb.texts import ASK_COMMAND, job_text

if TYPE_CHECKING:
    import argparse

    from loom_kb.service import Service

__all__ = ["duplicates", "jobs"]


async def jobs(service: Service, args: argparse.Namespace) -> int:
    """List the newest jobs, or tell all about one."""
    if args.id is None:
        newest = await service.jobs(limit=20)
        if args.json:
            out_json(newest)
        else:
            out("\n".join(job_text([info], ask=ASK_COMMAND) for info in newest.jobs) or "There are no jobs.")
        return 0
    knowledge_base, job = await service.job(args.id)
    if args.cancel:
        await to_thread.run_sync(knowledge_base.record.jobs.finish, job, "cancelled")
        job = knowledge_base.job(args.id)
    info = await to_thread.run_sync(job_info, knowledge_base, job)
    problems, notes = all_problems(knowledge_base.record, job), all_notes(knowledge_base.record, job)
    if args.json:
        every = {"problems": list(problems), "notes": list(notes), "next_cursor": None}
        out_json(info.model_copy(update=every))
        return 0
    out(job_text([info.model_copy(update={"problems": [], "notes": []})], ask=""))
    if job.error:
        out(f"  failed: {job.error}")
    for problem in problems:
        out(f"  {problem}")
    for note in notes:
        out(f"  note: {note}")
    return 0


async def duplicates(service: Service, args: argparse.Namespace) -> int:
    """List the documents that are the same, or nearly."""
    knowledge_base = await service.library.get(args.kb)
    record = knowledge_base.record
    if await to_thread.run_sync(record.duplicates.uncompared, 1):
        say("Some documents have yet to be compared; ask again when the work is done.")
    groups = await to_thread.run_sync(record.duplicates.groups)
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
            out(f"    {id_}  {shown(uri)}")
    if not groups:
        out("No two documents are the same or nearly.")
    return 0
