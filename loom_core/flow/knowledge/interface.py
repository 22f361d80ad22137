"""What a flow asks for knowledge. No I/O here."""

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
"""Context variables that answers of one must never reach another."""

_BLANKS = re.compile(r"\s+")
_AT_THE_END = " .。!！?？~～…"


class FlowKnowledge(Protocol):
    """A source of knowledge whose answers may depend on who asks."""

    def identity(self, message: str, context: Mapping[str, JsonValue]) -> str:
        """What an answer depends on: the same for two questions only if the same answers both.

        It is asked before the question, and waits for nothing.

        Raises:
            LoomError: it cannot be asked so.
        """
        ...

    async def find(self, message: str, context: Mapping[str, JsonValue]) -> Sequence[KnowledgeItem]:
        """The passages that may answer a message, best first.

        Raises:
            LoomError: why there is no answer.
        """
        ...


@runtime_checkable
class SupportsWarmUp(Protocol):
    """A source of knowledge that has something to load before it can answer."""

    async def warm_up(self) -> None:
        """Load it.

        Raises:
            LoomError: it cannot be loaded.
        """
        ...


def normalize_question(message: str) -> str:
    """A message in the one form of all that ask the same: width, case, blanks and the end do not count."""
    plain = _BLANKS.sub(" ", unicodedata.normalize("NFKC", message)).strip().casefold()
    return plain.rstrip(_AT_THE_END) or plain
