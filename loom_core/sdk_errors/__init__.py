"""Errors of the vendors' SDKs, converted to errors of Loom.

The SDKs of OpenAI and Anthropic are made by one generator: their errors have the same class names and
attributes, so neither is imported here. Errors that they pass through, such as errors of `httpx2` in the
middle of a stream and of invalid JSON, are known by name, too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.sdk_errors.error_messages import NoAnswerError, model_error

__all__ = ["NoAnswerError", "model_error"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(__name__)
