"""Loop guard: detects that a model repeats calls without progress, or gets only empty results."""

from __future__ import annotations

import json
import unicodedata
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from hashlib import blake2b
from math import inf, isfinite
from typing import TYPE_CHECKING, Literal, TypeAlias, cast

from loom_core.llm.messages import AssistantMessage, TextPart, ToolMessage
from loom_core.tools.calls import NO_OUTPUT

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.llm.messages import Message, ToolCallPart

__all__ = ["LoopGuard", "Verdict", "canonical_arguments", "with_reminder"]

_Signature: TypeAlias = "tuple[str, str]"

_OPEN, _CLOSE = "<reminder>", "</reminder>"
_NOT_RUN = "Not run: the same call"
_EMPTY = {"", "[]", "{}", "()", '""', "null", "none", NO_OUTPUT.casefold()}
_LONGEST_EMPTY = 200  # characters: a longer result is not empty
_DEEPEST = 64

_REMINDER = (
    "Before this call, {tool} was called {before} times with the same arguments and the same result. "
    "If it is the same again, the next such call will be refused: try other arguments or another tool, "
    "or answer with what you know."
)
_REFUSAL = (
    _NOT_RUN + " of {tool} has been made {before} times, with the result above. Do something else, or "
    "answer with what you know: making it once more ends the run."
)
_STOP = (
    "The model is in a loop: it has called {tool} {times} times with the same arguments, and "
    "nothing has changed."
)
_EMPTY_REMINDER = (
    "The last {times} results were empty: what you look for may not be there, or not under these words. "
    "Try another way, or say what you could not find."
)
_EMPTY_STOP = "The model makes no progress: the last {times} results of its tools were empty."


@dataclass(frozen=True, slots=True)
class Verdict:
    """Verdict of the loop guard about a call.

    Attributes:
        action: `run` it; run it and `remind` the model with `text` after the result; `refuse` it, with `text`
            as its result; `stop` the run, with `text` as the reason.
        text: message to the model or the user; empty for `run`.
        times: how often this call was made with the same result, including this time; for empty results, how
            many in a row.
    """

    action: Literal["run", "remind", "refuse", "stop"]
    text: str = ""
    times: int = 1


@dataclass(frozen=True, slots=True)
class _PastCall:
    """A finished call; `new`: its result differs from the previous one of the same call."""

    signature: _Signature
    result: bytes
    new: bool
    turn: int


class LoopGuard:
    """Detects loops in the calls of one run.

    A call is a repetition if the previous call with the same tool and the same arguments (in canonical form)
    had the same result, among the latest `window` calls. The third time in a row adds a reminder to the
    result, the fourth refuses the call, the fifth stops the run. Other calls in between do not matter if they
    are repetitions too, so A-B-A-B counts like A-A. Anything new resets the count: a different call, or a
    different result of the same call, such as a test that is run again after an edit.

    Identical calls of one turn count once, as the model had not seen the result. Tools that are meant to be
    polled (`poll`) do not count.

    Empty results of different calls are no progress either: after `most_empty` of them in a row the model
    gets a reminder. If it has read one, the run stops after twice as many.
    """

    def __init__(
        self,
        *,
        remind_at: int = 3,
        window: int = 12,
        most_empty: int = 5,
        poll: Sequence[str] = (),
    ) -> None:
        """Create the guard of a run.

        Args:
            remind_at: the repetition that adds the reminder; the next one is refused, and the one after that
                stops the run.
            window: number of calls to remember.
            most_empty: number of empty results in a row without a reminder.
            poll: name patterns of tools that are meant to be polled, such as `*job*`, by their wire names.
        """
        self._remind_at = remind_at
        self._most_empty = most_empty
        self._poll = tuple(poll)
        self._recent: deque[_PastCall] = deque(maxlen=window)
        self._refused: set[str] = set()
        self._asked: dict[str, tuple[ToolCallPart, _Signature]] = {}  # calls without a result yet
        self._empty = 0
        self._reminded = inf  # turn of the first reminder of empty results
        self._turn = 0
        self._turn_ends = False  # a result has come: the next call belongs to a later turn

    def before(self, call: ToolCallPart) -> Verdict:
        """Return the verdict about a call before it runs.

        Call this for all calls of a turn before reporting any result.
        """
        if self._turn_ends:
            self._turn += 1
            self._turn_ends = False
        if self._is_poll(call.name):
            return Verdict("run")
        signature = _signature(call)
        self._asked[call.id] = (call, signature)
        times = self._times(signature)
        if times > self._remind_at + 1:
            return Verdict("stop", _STOP.format(tool=call.name, times=times), times)
        if times > self._remind_at:
            self._repeat(signature)
            self._refused.add(call.id)
            return Verdict("refuse", _REFUSAL.format(tool=call.name, before=times - 1), times)
        if times == self._remind_at:
            return Verdict("remind", _REMINDER.format(tool=call.name, before=times - 1), times)
        if self._empty >= 2 * self._most_empty and self._reminded < self._turn:
            return Verdict("stop", _EMPTY_STOP.format(times=self._empty), self._empty)
        if self._empty >= self._most_empty:
            self._reminded = min(self._reminded, self._turn)
            return Verdict("remind", _EMPTY_REMINDER.format(times=self._empty), self._empty)
        return Verdict("run", times=times)

    def after(self, call: ToolCallPart, result_text: str, *, failed: bool, changes: bool = False) -> None:
        """Report the result of a call; optional for a refused call.

        Args:
            call: the call.
            result_text: the text of its result that the model reads, without a reminder.
            failed: whether it failed: a failure is never an empty result.
            changes: whether the call is made for its effect: then an empty result does not count.
        """
        self._turn_ends = True
        asked, signature = self._asked.pop(call.id, (None, None))
        if call.id in self._refused:
            self._refused.discard(call.id)
            return
        if self._is_poll(call.name):
            return
        text = result_text.strip()
        if failed or changes or not _is_empty(text):
            self._empty, self._reminded = 0, inf
        else:
            self._empty += 1
        if asked is not call or signature is None:  # it ran with other arguments
            signature = _signature(call)
        result = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        last = self._last(signature)
        if last is not None and last.result == result and last.turn == self._turn:
            return
        new = last is None or last.result != result
        self._recent.append(_PastCall(signature, result, new, self._turn))

    def replay(self, history: Sequence[Message]) -> None:
        """Restore the state from the calls of a history, for a resumed run.

        Reminders and refusals in the history are recognized.
        """
        calls: dict[str, ToolCallPart] = {}
        for message in history:
            if isinstance(message, AssistantMessage):
                calls = {call.id: call for call in message.tool_calls}
                self._turn += 1
            elif isinstance(message, ToolMessage) and (call := calls.pop(message.call_id, None)) is not None:
                text = _without_reminder(message)
                if text.startswith(_NOT_RUN):
                    self._repeat(_signature(call))
                else:
                    self.after(call, text, failed=message.failed)
        self._turn_ends = True

    def _is_poll(self, name: str) -> bool:
        return any(fnmatchcase(name, pattern) for pattern in self._poll)

    def _times(self, signature: _Signature) -> int:
        """Return how often a call would have been made with the same result, including one more time."""
        known = self._last(signature) is not None
        times = 1 + known
        for seen in reversed(self._recent):
            if seen.new:
                break
            times += seen.signature == signature
        return times

    def _last(self, signature: _Signature) -> _PastCall | None:
        return next((seen for seen in reversed(self._recent) if seen.signature == signature), None)

    def _repeat(self, signature: _Signature) -> None:
        """Count a call as made with its previous result."""
        last = self._last(signature)
        if last is not None:
            self._recent.append(replace(last, new=False, turn=self._turn))


def canonical_arguments(call: ToolCallPart) -> str:
    """Return the canonical form of a call's arguments.

    The order of keys, `1` or `1.0`, and the Unicode composition of accents make no difference.
    """
    if call.unreadable:
        return unicodedata.normalize("NFC", call.unreadable.strip())
    return json.dumps(_canonical(call.arguments, _DEEPEST), ensure_ascii=False, sort_keys=True)


def with_reminder(message: ToolMessage, text: str) -> ToolMessage:
    """Append a reminder to a result, in a form that `LoopGuard.replay` can recognize."""
    return replace(message, parts=(*message.parts, TextPart(f"\n\n{_OPEN}{text}{_CLOSE}")))


def _without_reminder(message: ToolMessage) -> str:
    parts = message.parts
    last = parts[-1] if parts else None
    if isinstance(last, TextPart) and last.text.startswith(f"\n\n{_OPEN}") and last.text.endswith(_CLOSE):
        parts = parts[:-1]
    return "".join(part.text for part in parts if isinstance(part, TextPart))


def _signature(call: ToolCallPart) -> _Signature:
    return call.name, canonical_arguments(call)


def _canonical(value: object, deepest: int) -> object:
    if isinstance(value, str):
        return value if value.isascii() else unicodedata.normalize("NFC", value)
    if isinstance(value, float):
        if not isfinite(value):
            return str(value)
        return int(value) if value.is_integer() else value
    if value is None or isinstance(value, int):
        return value
    if deepest == 0:
        return repr(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[object, object]", value)
        return {
            unicodedata.normalize("NFC", str(name)): _canonical(each, deepest - 1)
            for name, each in members.items()
        }
    if isinstance(value, list | tuple):
        return [_canonical(each, deepest - 1) for each in cast("Sequence[object]", value)]
    return repr(value)


def _is_empty(text: str) -> bool:
    """Whether a result is empty: no text, or a JSON object with an empty list and no other value."""
    if len(text) > _LONGEST_EMPTY:
        return False
    if text.casefold() in _EMPTY:
        return True
    if not text.startswith("{"):
        return False
    try:
        value: object = json.loads(text)
    except ValueError:
        return False
    members = list(cast("dict[str, object]", value).values())
    return [] in members and not any(members)
