"""Content of people and models in traces: only if the operator enables it, and never with known secrets."""

from __future__ import annotations

import json
import os

from loom_core.redaction import Redaction, redact_log_text

__all__ = ["CONTENT_VARIABLE", "content_json", "records_content", "redact_content"]

CONTENT_VARIABLE = "LOOM_TRACE_CONTENT"
"""Environment variable: set to 1, spans record prompts and responses."""

_LONGEST = 20_000  # characters of an attribute


def records_content() -> bool:
    """Return whether the operator enabled content in traces."""
    return os.environ.get(CONTENT_VARIABLE, "") == "1"


def redact_content(text: str) -> str:
    """Redact a text: secrets of the environment, and anything that looks like a token; truncate it.

    This is best-effort: if traces must never have secrets, do not record content.
    """
    return _truncate(redact_log_text(text))


def content_json(value: object) -> str:
    """Serialize a value as JSON without secrets; other values than JSON's are written as their `repr`."""
    plain: object = json.loads(json.dumps(value, ensure_ascii=False, default=repr))
    # Text by text: in escaped form a secret would not be found.
    return _truncate(json.dumps(Redaction.now(assigned=True).value(plain), ensure_ascii=False))


def _truncate(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… [{len(text):,} characters]"
