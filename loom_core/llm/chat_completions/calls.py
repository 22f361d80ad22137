"""Tool calls of an answer, put together from the pieces in which servers send them."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from loom_core.llm.chat_completions.loose_json import as_mapping, as_text
from loom_core.llm.interface import ToolCallDelta
from loom_core.llm.message_reading import read_tool_call

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from loom_core.llm.messages import ToolCallPart

__all__ = ["CallPiece", "ToolCalls"]


@dataclass(slots=True)
class CallPiece:
    """A call so far.

    Attributes:
        index: which call of the answer, from 0.
        place: the server's number of it, or None where it gives none.
        came_as: the server's id of it, or empty so far.
        id: its id for us, as soon as it has been announced: another where the server's is missing, or is that
            of an earlier call.
        name: the tool.
        arguments: their text, in pieces.
        opaque: what else came with it.
    """

    index: int
    place: int | None
    came_as: str = ""
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    opaque: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def text(self) -> str:
        """The arguments' text so far."""
        return "".join(self.arguments)

    @property
    def whole(self) -> bool:
        """Whether nothing is missing of the arguments."""
        try:
            return isinstance(json.loads(self.text), dict)
        except (ValueError, RecursionError):
            return False

    def as_part(self) -> ToolCallPart:
        """The call as a part of a message."""
        return read_tool_call(self.id, self.name, self.text, opaque=self.opaque)


class ToolCalls:
    """The calls of one answer.

    By the format a piece has an `index`, and the first piece of a call its id and name. Servers also send no
    index, 0 for all calls, whole calls at once, the id and the name with every piece, a new id with every
    piece, no id, or the name in pieces; all that is understood where it can be told apart.

    Attributes:
        calls: the calls so far, in order.
        length: letters that came, about.
    """

    def __init__(self, *, extras: Sequence[str] = ()) -> None:
        """Begin an answer.

        Args:
            extras: fields of a call that are kept in its `opaque`.
        """
        self.calls: list[CallPiece] = []
        self.length = 0
        self._extras = extras
        self._ids: set[str] = set()

    def feed(self, pieces: Sequence[object], *, whole: bool = False) -> list[ToolCallDelta]:
        """The next pieces.

        Args:
            pieces: the list `tool_calls` of a message or a delta.
            whole: it is that of a message: each is a call of its own.
        """
        deltas: list[ToolCallDelta] = []
        for position, piece in enumerate(pieces):
            if fields := as_mapping(piece):
                number = position if len(pieces) > 1 else None
                deltas += self._feed(fields, number, whole=whole)
        return deltas

    def finish(self) -> list[ToolCallDelta]:
        """What was not handed on so far: calls without arguments, or without a name."""
        return [self._announced(call) for call in self.calls if not call.id]

    def _feed(self, piece: Mapping[str, Any], number: int | None, *, whole: bool) -> list[ToolCallDelta]:
        function = as_mapping(piece.get("function"))
        id_, name = as_text(piece.get("id")), as_text(function.get("name"))
        arguments = _json_text(function.get("arguments"))
        index = piece.get("index")
        place = index if isinstance(index, int) else None if id_ else number
        call = None if whole else self._continued(place, id_, name, arguments)
        if call is None:
            call = CallPiece(len(self.calls), place)
            self.calls.append(call)
        self.length += len(id_) + len(name) + len(arguments) + 1
        call.came_as = call.came_as or id_
        call.opaque |= {extra: piece[extra] for extra in self._extras if piece.get(extra)}
        if name != call.name and not call.id:
            call.name += name
        if arguments:
            call.arguments.append(arguments)
        if call.id:
            return [ToolCallDelta(call.index, arguments=arguments)] if arguments else []
        return [self._announced(call)] if call.name and call.arguments else []

    def _continued(self, place: int | None, id_: str, name: str, arguments: str) -> CallPiece | None:
        """The call that a piece goes on with, or None where it begins one."""
        if id_:
            for call in reversed(self.calls):
                if call.came_as == id_ and (place is None or call.place in {None, place}):
                    return call
        current = next((call for call in reversed(self.calls) if place is None or call.place == place), None)
        if current is None:
            return None
        if id_ and name and current.came_as and (not current.arguments or current.whole):
            return None
        if name and arguments and not id_ and current.name and current.whole:
            return None
        return current

    def _announced(self, call: CallPiece) -> ToolCallDelta:
        """The first piece of a call that is handed on, as soon as its name is certain."""
        call.id = call.came_as
        while not call.id or call.id in self._ids:
            call.id = f"call_{uuid4().hex[:24]}"
        self._ids.add(call.id)
        return ToolCallDelta(call.index, call.id, call.name, call.text)


def _json_text(value: object) -> str:
    """Arguments as the text that they should be: some servers send the object."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)
