"""Comparison of two surfaces of a server, to find breaking changes.

The questions are whether a call that worked with the old server still works with the new one, whether what
a program read out of the answer is still there, and whether a host may still run a tool without asking.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, cast

from tools.schema_inclusion import Refusal, refusals

__all__ = ["Change", "Surface", "changes"]

Surface: TypeAlias = Mapping[str, Sequence[Mapping[str, Any]]]
"""The definitions under `tools`, `resourceTemplates` and `prompts`, as they are sent."""

# The hints in the protocol's words: what holds where nothing is said, and what lets a host go ahead.
_HINTS = {
    "readOnlyHint": (False, True),
    "destructiveHint": (True, False),
    "idempotentHint": (False, True),
    "openWorldHint": (True, False),
}
_KINDS = {
    "tools": ("tool", "name"),
    "resourceTemplates": ("template", "uriTemplate"),
    "prompts": ("prompt", "name"),
}


@dataclass(frozen=True, slots=True)
class Change:
    """A difference between two surfaces.

    Attributes:
        breaking: something that relied on the old surface may fail with the new one.
        where: what has changed, such as "tool `query`, argument `limit`".
        what: how.
    """

    breaking: bool
    where: str
    what: str

    def __str__(self) -> str:
        return f"{'BREAKING' if self.breaking else 'compatible'}: {self.where}: {self.what}"


def changes(old: Surface, new: Surface) -> list[Change]:
    """Return the changes of a surface, breaking ones first; empty only if both are equal."""
    found: list[Change] = []
    for key, (kind, identity) in _KINDS.items():
        before = {item[identity]: item for item in old.get(key, ())}
        after = {item[identity]: item for item in new.get(key, ())}
        found += [Change(True, f"{kind} `{name}`", "gone") for name in before if name not in after]
        found += [Change(False, f"{kind} `{name}`", "new") for name in after if name not in before]
        for name in (name for name in before if name in after):
            found += _changes(f"{kind} `{name}`", before[name], after[name])
        kept = [name for name in after if name in before]
        if kept != [name for name in before if name in after]:
            found.append(Change(False, key, f"in another order: {', '.join(kept)}"))
    return sorted(found, key=lambda change: not change.breaking)


def _changes(where: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Change]:
    broken = [Change(True, f"{where}{place}", what) for place, what in _broken(old, new)]
    if broken:
        return broken
    return [Change(False, where, difference) for difference in _differences(old, new)]


def _broken(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    for hint, (unsaid, safe) in _HINTS.items() if "inputSchema" in old else ():
        was, now = (one.get("annotations", {}).get(hint, unsaid) for one in (old, new))
        if was == safe != now:
            yield "", f"it does not promise any more: {hint} {str(safe).lower()}"
    for refusal in refusals(old.get("inputSchema", {}), new.get("inputSchema", {})):
        yield _place("argument", refusal), _describe(refusal, old=refusal.narrow, new=refusal.wide)
    if "outputSchema" in old and "outputSchema" not in new:
        yield "", "its answer is not described any more"
    elif "outputSchema" in old:
        for refusal in refusals(new["outputSchema"], old["outputSchema"]):
            yield _place("answer", refusal), _describe(refusal, old=refusal.wide, new=refusal.narrow)
    arguments = {argument["name"]: argument for argument in old.get("arguments", ())}
    for argument in new.get("arguments", ()):
        was = arguments.pop(argument["name"], {})
        if argument.get("required") and not was.get("required"):
            yield f", argument `{argument['name']}`", "required now"
    for name in arguments:
        yield f", argument `{name}`", "gone"


def _place(part: str, refusal: Refusal) -> str:
    return f", {part} `{refusal.place}`" if refusal.place else f", {part}s as a whole"


def _describe(refusal: Refusal, *, old: object, new: object) -> str:
    match refusal.keyword:
        case "property":
            return "gone" if new is None else "not known before, and not free"
        case "required":
            return "required now" if new else "not always there any more"
        case keyword:
            return f"{keyword} {_value(new)}, was {_value(old)}"


def _differences(old: object, new: object, place: str = "") -> Iterator[str]:
    """Yield the leaves in which two JSON values differ."""
    match old, new:
        case {}, {}:
            before, after = cast("Mapping[str, object]", old), cast("Mapping[str, object]", new)
            for name in {**before, **after}:
                inner = f"{place}.{name}" if place else name
                yield from _differences(before.get(name), after.get(name), inner)
        case _ if old != new:
            yield f"{place}: {_value(new)}, was {_value(old)}"
        case _:
            return


def _value(value: object) -> str:
    return "not given" if value is None else repr(value)
