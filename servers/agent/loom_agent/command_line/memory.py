"""The command `memory`: what agents remember about users, for the operator of this home."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from loom_agent import PROGRAM
from loom_agent.profiles.local_knowledge import require_search
from loom_agent.settings import LOCAL_USER
from loom_core.agent.user_memory.memory import UserMemory
from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.paths import token_path
from loom_core.server.cli.console import out, out_json

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from loom_agent.settings import Settings
    from loom_core.agent.user_memory.note import Note

__all__ = ["run_memory_command"]


def run_memory_command(args: argparse.Namespace, settings: Settings) -> int:
    """Run `memory`; return the exit code.

    Args:
        args: the action and its options.
        settings: settings of the process.
    """
    require_search()
    anyio.run(_run, UserMemory(settings.user_memory), args, settings)
    return 0


async def _run(memory: UserMemory, args: argparse.Namespace, settings: Settings) -> None:
    users = await memory.users()
    if args.action == "users":
        out_json({"users": users}) if args.json else out("\n".join(users) or "There are no notes.")
        return
    user = await to_thread.run_sync(_find_user, args.user, users, settings)
    if args.action == "clear":
        number = await memory.clear(user)
        out_json({"user": user, "deleted": number}) if args.json else out(f"Notes deleted: {number}.")
        return
    if args.action in {"show", "forget"} and not args.ids:
        raise InvalidInputError(f"`{args.action}` needs a note.", advice="Give its id, as `list` shows it.")
    notes = _select(await memory.notes(user), args.ids)
    if args.action == "forget":
        notes = await memory.forget(user, args.ids)
    if args.json or args.action == "export":
        out_json({"user": user, "notes": [asdict(each) for each in notes]})
    elif args.action == "forget":
        out(f"Deleted: {', '.join(each.id for each in notes)}.")
    else:
        shown = [_describe(each, whole=args.action == "show") for each in notes]
        out("\n".join(shown) or "There are no notes.")


def _find_user(given: str, users: Sequence[str], settings: Settings) -> str:
    """Return the id of a user, by the name of a token or an id.

    Raises:
        NotFoundError: there is neither such a token nor a user with notes.
    """
    from loom_core.server.auth.tokens import TokenFile

    if not given:
        return LOCAL_USER
    for token in TokenFile(token_path(settings.home, PROGRAM)).list():
        if given in {token.name, token.caller().id}:
            return token.caller().id
    if given not in users:
        raise NotFoundError(
            f"There is no token {given[:100]!r}, and no user with notes of this id.",
            advice=f"`{PROGRAM} memory users` lists the ids.",
        )
    return given


def _select(notes: Sequence[Note], ids: Sequence[str]) -> list[Note]:
    """Return the notes with some ids; all if none is given.

    Raises:
        NotFoundError: there is none with an id.
    """
    if missing := sorted(set(ids) - {each.id for each in notes}):
        raise NotFoundError(
            f"There is no note {missing[0]!r}.", advice=f"`{PROGRAM} memory list` shows the notes of a user."
        )
    return [each for each in notes if not ids or each.id in ids]


def _describe(note: Note, *, whole: bool) -> str:
    line = f"{note.id} {note.day} {note.kind} {note.text}"
    if not whole:
        return line
    facts: dict[str, Any] = {"from": note.source, "run": note.run_id, "session": note.session_id}
    lines = [f"  {name}: {value}" for name, value in facts.items() if value]
    return "\n".join([line, *lines, *(f"  earlier: {each}" for each in note.earlier)])
