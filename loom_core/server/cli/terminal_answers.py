"""Asking the person at a terminal about what a run waits for."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, cast

from loom_core.knowledge.text.control_characters import visible
from loom_core.runs.commands import Answered, Decided
from loom_core.server.cli.console import say

if TYPE_CHECKING:
    from collections.abc import Mapping

    from loom_core.runs.run import Pending
    from loom_core.server.cli.keyboard import Keyboard

__all__ = ["asked_at_terminal"]


async def asked_at_terminal(
    keyboard: Keyboard, question: str, pending: Pending, *, by: str
) -> Decided | Answered | None:
    """Ask the person about something that a run waits for; None if they make no choice.

    Args:
        keyboard: where they type.
        question: what they are asked.
        pending: what the run waits for.
        by: who they are, for the journal.
    """
    say(question)
    if pending.kind == "question":
        return await _answered(keyboard, pending, by)
    every = "[a]ll of this tool, " if pending.for_run else ""
    choices = f"[y]es, {every}[n]o, [e]dit" if pending.kind == "approval" else "[y]es, [n]o"
    while True:
        said = await keyboard.line(f"{choices}: ")
        if said is None:
            return None
        match said.strip().lower():
            case "y" | "yes" | "是":
                return Decided(id=pending.id, action="approve", by=by)
            case "a" | "all" | "全部" if pending.for_run:
                return Decided(id=pending.id, action="approve", scope="run", by=by)
            case "n" | "no" | "否":
                reason = await keyboard.line("Why? (may be empty) ") or ""
                return Decided(id=pending.id, action="deny", reason=reason.strip(), by=by)
            case "e" | "edit" if pending.kind == "approval":
                if (arguments := await _edited(keyboard, pending.arguments)) is not None:
                    return Decided(id=pending.id, action="edit", arguments=arguments, by=by)
            case _:
                pass


async def _edited(keyboard: Keyboard, arguments: Mapping[str, Any]) -> Mapping[str, Any] | None:
    say(json.dumps(dict(arguments), ensure_ascii=False))
    line = await keyboard.line("Arguments as JSON: ")
    return _object(line or "")


async def _answered(keyboard: Keyboard, pending: Pending, by: str) -> Answered | None:
    properties = cast("Mapping[str, Mapping[str, Any]]", pending.schema.get("properties", {}))
    content: dict[str, Any] = {}
    if not properties:
        said = await keyboard.line("[y]es, [n]o: ")
        if said is None:
            return None
        agreed = said.strip().lower() in {"y", "yes", "是"}
        return Answered(id=pending.id, action="accept" if agreed else "decline", by=by)
    for name, part in properties.items():
        label = part.get("title") or part.get("description") or name
        choices = f" ({', '.join(map(str, part['enum']))})" if "enum" in part else ""
        said = await keyboard.line(f"{visible(str(label))}{visible(choices)}: ")
        if said is None:
            return None
        if said or name in pending.schema.get("required", ()):
            content[name] = _value(said, str(part.get("type", "string")))
    return Answered(id=pending.id, action="accept", content=content, by=by)


def _value(said: str, kind: str) -> object:
    """What was typed as the type that is wanted, where it can be."""
    if kind == "boolean":
        return said.strip().lower() in {"y", "yes", "true", "1", "是"}
    if kind in {"integer", "number"}:
        try:
            return int(said) if kind == "integer" else float(said)
        except ValueError:
            return said
    return said


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        value: object = json.loads(text)
    except ValueError as error:
        say(f"This is no JSON: {error}")
        return None
    if not isinstance(value, dict):
        say("Write an object in braces.")
        return None
    return cast("dict[str, Any]", value)
