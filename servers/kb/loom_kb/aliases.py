"""The command `aliases`: entities under several names."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.errors import InvalidInputError
from loom_kb.console import out, out_json, say, strong

if TYPE_CHECKING:
    import argparse

    from loom_core.knowledge.rag.aliases import AliasGroup, AliasReason
    from loom_kb.service import Service

__all__ = ["aliases"]

_PAGE = 200
_TOLD = {
    "acronym": "is an acronym",
    "also_called": "is said to be another name",
    "translation": "may be a translation",
    "spelling": "is another spelling",
    "decision": "was merged by you",
}


async def aliases(service: Service, args: argparse.Namespace) -> int:
    """List, merge or split; returns the exit code."""
    knowledge_base = await service.library.get(args.kb)
    known = knowledge_base.aliases
    given: list[str] = args.names
    if args.merge or args.split or args.undecide:
        if len(given) != 2:
            raise InvalidInputError(
                f"Two names are needed, not {len(given)}.",
                advice='Write for example: loom-kb aliases --merge "System Admin" 系统管理员',
            )
        name, other = given
        if args.merge:
            groups = [await to_thread.run_sync(known.merge, name, other)]
        elif args.split:
            groups = list(await to_thread.run_sync(known.split, name, other))
        elif await to_thread.run_sync(known.undecide, name, other):
            groups = [await to_thread.run_sync(known.group_of, name) for name in given]
        else:
            say("Nothing was decided of these two names.")
            return 1
        knowledge_base.worker.wake()
        _show(groups, as_json=args.json)
        return 0
    if args.suggested:
        reasons = await to_thread.run_sync(known.suggestions)
        if args.json:
            out_json({"suggestions": [asdict(reason) for reason in reasons]})
            return 0
        for reason in reasons:
            out(_told(reason))
        say(
            "Merge two of them: loom-kb aliases --merge NAME OTHER"
            if reasons
            else "There is nothing to suggest."
        )
        return 0
    if given:
        _show([await to_thread.run_sync(known.group_of, name) for name in given], as_json=args.json)
        return 0
    groups: list[AliasGroup] = []
    after: int | None = 0
    while after is not None:
        found, after = await to_thread.run_sync(lambda start=after: known.groups(limit=_PAGE, after=start))
        groups += found
    _show(groups, as_json=args.json)
    return 0


def _show(groups: list[AliasGroup], *, as_json: bool) -> None:
    if as_json:
        out_json({"groups": [asdict(group) for group in groups]})
        return
    for group in groups:
        out(strong(" = ".join(group.names)))
        for reason in group.reasons:
            out(f"    {_told(reason)}")
    if not groups:
        say("No entity has several names yet.")


def _told(reason: AliasReason) -> str:
    sure = "" if reason.kind == "decision" else f" ({reason.confidence:.2f})"
    said = f": “{reason.evidence}” [{reason.passage_id}]" if reason.evidence else ""
    return f"{reason.other} {_TOLD[reason.kind]} of {reason.name}{sure}{said}"
