"""Base of response readers: length limit and errors, common to all formats."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.errors import LLMError, capitalise

if TYPE_CHECKING:
    from loom_core.errors import ModelFailure
    from loom_core.llm.vendors import ProviderSpec

__all__ = ["MAX_COUNT", "MAX_LENGTH", "WireReader"]

MAX_LENGTH = 8 * 2**20
"""Maximum length of a response in characters."""

MAX_COUNT = 2**53
"""Limit of a reported number of tokens: more is no count, and too large for prices."""


class WireReader:
    """Reads one response; a subclass knows the format.

    Args:
        spec: the vendor.
        model: the model.
        output_tool: the tool whose arguments are the text of the response, or empty.
        max_length: maximum length of the response in characters.
    """

    def __init__(
        self, spec: ProviderSpec, *, model: str, output_tool: str = "", max_length: int = MAX_LENGTH
    ) -> None:
        self._spec = spec
        self._asked = model
        self._output_tool = output_tool
        self._max_length = max_length
        self._length: int = 0
        self._model = ""
        self._finish = ""

    def unreadable(self, why: str) -> LLMError:
        """Return the error of an unreadable response."""
        return self._error("unreadable", "sent an unreadable response of", f"Why: {why}.")

    def _broken_off(self) -> LLMError:
        return self._error("connection", "sent an incomplete response of", "The stream ended early.")

    def _too_long(self) -> LLMError:
        return self.unreadable(f"it has more than {self._max_length} characters")

    def _error(self, failure: ModelFailure, did: str, why: str) -> LLMError:
        return LLMError(
            f"{capitalise(self._spec.title)} {did} {self._asked}. {why}",
            advice="Try again, or use another model.",
            failure=failure,
            provider=self._spec.name,
        )
