"""Interfaces of flow knowledge. No I/O here."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.tools.interface import JsonValue

__all__ = ["TENANCY", "FlowKnowledge", "SupportsWarmUp", "normalize_question"]

TENANCY = ("tenantId", "chatbotId")
"""Context variables that isolate tenants: an answer for one must never reach another."""

_BLANKS = re.compile(r"\s+")
_AT_THE_END = " .。!！?？~～…"


class FlowKnowledge(Protocol):
    """A knowledge source whose answers may depend on the user."""

    def identity(self, message: str, context: Mapping[str, JsonValue]) -> str:
        """Return the cache key of a question: the same for two questions only if one answer serves both.

        It is called before the query, and must not block.

        Raises:
            LoomError: such a question is not possible.
        """
        ...

    async def find(self, message: str, context: Mapping[str, JsonValue]) -> Sequence[KnowledgeItem]:
        """Return the passages that may answer a message, best first.

        Raises:
            LoomError: the query failed; the message says why.
        """
        ...


@runtime_checkable
class SupportsWarmUp(Protocol):
    """A knowledge source that has to load before it can answer."""

    async def warm_up(self) -> None:
        """Load it.

        Raises:
            LoomError: it cannot be loaded.
        """
        ...


def normalize_question(message: str) -> str:
    """Normalize a question: width, case, whitespace and final punctuation do not count."""
    plain = _BLANKS.sub(" ", unicodedata.normalize("NFKC", message)).strip().casefold()
    return plain.rstrip(_AT_THE_END) or plain
