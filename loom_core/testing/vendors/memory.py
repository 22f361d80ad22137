"""What a fake vendor remembers of its own answers, to know them when they come back."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any

__all__ = ["Memory", "signature"]


def signature(vendor: str, text: str) -> str:
    """What a vendor signs its thinking with: opaque to others, and right for this text only."""
    digest = hashlib.sha256(f"{vendor}\0{text}".encode("utf-8", "surrogatepass")).hexdigest()
    return f"{vendor}-{digest[:40]}"


class Memory:
    """What one server said: answers with tool calls, by the ids of these, and thoughts, by signature."""

    def __init__(self) -> None:
        self._issued = 0
        self._prefixes: dict[str, set[str]] = {}
        self._answers: dict[str, Mapping[str, Any]] = {}

    def new_id(self, prefix: str) -> str:
        """An id that was not given before."""
        self._issued += 1
        return f"{prefix}{self._issued}"

    def keep(self, call_id: str, message: Mapping[str, Any]) -> None:
        """Remember the message that a call was in."""
        self._answers[call_id] = message

    def answer(self, call_id: object) -> Mapping[str, Any] | None:
        """The message that a call was in, or None for a call that another server made."""
        return self._answers.get(call_id) if isinstance(call_id, str) else None

    def keep_thought(self, signed: str, prefix: str) -> None:
        """Remember what stood before a thought."""
        self._prefixes.setdefault(signed, set()).add(prefix)

    def knows_thought(self, signed: str, prefix: str) -> bool:
        """Whether a thought was thought behind this."""
        return prefix in self._prefixes.get(signed, ())
