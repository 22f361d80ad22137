"""Content of people and models in traces: only if the operator enables it, and never with known secrets."""

from __future__ import annotations

import json
import os

from loom_core.redaction import Redaction, without_assigned

__all__ = ["CONTENT_VARIABLE", "content_json", "records_content", "redact_content"]

CONTENT_VARIABLE = "LOOM_TRACE_CONTENT"
"""Set to 1, spans say what was asked and answered."""

_LONGEST = 20_000  # characters of an attribute


def records_content() -> bool:
    """Whether the operator wants content in traces."""
    return os.environ.get(CONTENT_VARIABLE, "") == "1"


def redact_content(text: str) -> str:
    """A text without secrets: those in the environment, and what looks like a token; a long one is cut.

    It is as good as that can be: who must not have secrets in traces leaves content out of them.
    """
    return _truncate(without_assigned(text))


def content_json(value: object) -> str:
    """A value as JSON without secrets; what JSON has no form for is written as Python shows it."""
    plain: object = json.loads(json.dumps(value, ensure_ascii=False, default=repr))
    # Text by text: escaped, a secret could not be seen any more.
    return _truncate(json.dumps(Redaction.now(assigned=True).value(plain), ensure_ascii=False))


def _truncate(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… [{len(text):,} characters]"
