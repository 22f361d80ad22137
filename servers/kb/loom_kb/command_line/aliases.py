"""The command `aliases`: entities under several names."""

from __future__ import annotations

from dataclasses import asdict
from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.server.cli.console import out, out_json, say, strong

if TYPE_CHECKING:
    import argparse

    from loom_core.knowledge.rag.entity_aliases import AliasGroup, AliasReason, EntityAliases
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
        await to_thread.run_sync(_list, known, args)
    return 0


def _decide(known: EntityAliases, args: argparse.Namespace) -> bool:
    """Merge, split, or undo either; False where there was nothing to undo."""
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
    elif known.undecide(name, other):
        # A name that no document uses any more may have been decided about, too.
        groups = list(dict.fromkeys(filter(None, map(partial(_group_of, known), args.names))))
    else:
        say("Nothing was decided of these two names.")
        return False
    _show(groups, as_json=args.json)
    return True


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
        out(_told(reason))
    advice = "Merge two of them: loom-kb aliases --merge NAME OTHER"
    say(advice if reasons else "There is nothing to suggest.")


def _list(known: EntityAliases, args: argparse.Namespace) -> None:
    groups: list[AliasGroup] = []
    after: int | None = 0
    while after is not None:
        found, after = known.groups(limit=_PAGE, after=after)
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
