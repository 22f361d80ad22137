"""Reasoning inside the text of a response, between `<think>` and `</think>`."""

from __future__ import annotations

from typing import Final, Literal

__all__ = ["CAME_IN_TAGS", "ThinkTags", "wrap_in_tags"]

CAME_IN_TAGS: Final = "<think>"
"""`ReasoningPart.came_in` of such reasoning."""

_OPEN: Final = "<think>"
_CLOSE: Final = "</think>"


def wrap_in_tags(reasoning: str) -> str:
    """Wrap reasoning in tags, to go before the response text."""
    return f"{_OPEN}{reasoning}{_CLOSE}\n\n"


class ThinkTags:
    """Splits streamed text into reasoning and response.

    Only a tag at the start of the text counts, white space aside: later tags are plain text. A closing tag
    without an opening one is text, too, as the text before it has already been emitted.
    """

    def __init__(self) -> None:
        """Start before the first piece."""
        self._state: Literal["before", "inside", "behind"] = "before"
        self._held = ""

    @property
    def done(self) -> bool:
        """Whether everything from now on is the response."""
        return self._state == "behind" and not self._held

    def feed(self, piece: str) -> tuple[str, str]:
        """Add the next piece; return reasoning and text that are certain. A partial tag is buffered."""
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
        """Return the buffered rest at the end of the stream: reasoning and text."""
        held, self._held = self._held, ""
        return (held, "") if self._state == "inside" else ("", held)


def _partial_tag_length(text: str) -> int:
    """Return how many characters at the end of a text may begin the closing tag."""
    return next((length for length in range(len(_CLOSE) - 1, 0, -1) if text.endswith(_CLOSE[:length])), 0)
