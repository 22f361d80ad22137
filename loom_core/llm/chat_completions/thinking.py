"""Reasoning that stands in the text of an answer, between `<think>` and `</think>`."""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["CAME_IN_TAGS", "ThinkTags", "wrap_in_tags"]

CAME_IN_TAGS: Final = "<think>"
"""`ReasoningPart.came_in` of such reasoning."""

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


def wrap_in_tags(reasoning: str) -> str:
    """Reasoning as it stands in a text, before the answer."""
    return f"{_OPEN}{reasoning}{_CLOSE}\n\n"


class ThinkTags:
    """Parts a text that comes in pieces into reasoning and answer.

    Only what the text begins with counts, white space aside: later tags are text like any other. A closing
    tag without an opening one is text, too, as what came before it has been handed on.
    """

    def __init__(self) -> None:
        """Begin before the first piece."""
        self._state: Literal["before", "inside", "behind"] = "before"
        self._held = ""

    @property
    def done(self) -> bool:
        """Whether all that comes now is the answer, as it is."""
        return self._state == "behind" and not self._held

    def feed(self, piece: str) -> tuple[str, str]:
        """What is certain with the next piece: reasoning, and text. A tag that is cut in two is held back."""
        self._held += piece
        reasoning = ""
        if self._state == "before":
            start = self._held.lstrip()
            if start.startswith(_OPEN):
                self._state, self._held = "inside", start.removeprefix(_OPEN)
            elif not _OPEN.startswith(start):
                self._state = "behind"
            else:
                return "", ""
        if self._state == "inside":
            reasoning, tag, rest = self._held.partition(_CLOSE)
            if tag:
                self._state, self._held = "behind", rest
            else:
                cut = len(reasoning) - _partial_tag_length(reasoning)
                self._held, reasoning = reasoning[cut:], reasoning[:cut]
                return reasoning, ""
        text, self._held = self._held, ""
        return reasoning, text

    def finish(self) -> tuple[str, str]:
        """What was held back, as nothing follows: reasoning, and text."""
        held, self._held = self._held, ""
        return (held, "") if self._state == "inside" else ("", held)


def _partial_tag_length(text: str) -> int:
    """How many letters at the end of a text may be the beginning of the closing tag."""
    return next((length for length in range(len(_CLOSE) - 1, 0, -1) if text.endswith(_CLOSE[:length])), 0)
