"""What vendors say that an answer took."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from loom_core.llm.chat_completions.loose_json import as_count, as_mapping
from loom_core.llm.interface import Usage

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["read_usage"]


def read_usage(fields: Mapping[str, Any]) -> Usage:
    """The field `usage` of an answer; empty, it says that all is to be estimated."""
    if not fields:
        return Usage(estimated=True)
    cached = as_mapping(fields.get("prompt_tokens_details")).get("cached_tokens")
    if cached is None:  # DeepSeek; Kimi
        cached = fields.get("prompt_cache_hit_tokens", fields.get("cached_tokens"))
    reasoning = as_mapping(fields.get("completion_tokens_details")).get("reasoning_tokens")
    return Usage(
        input_tokens=as_count(fields.get("prompt_tokens")),
        output_tokens=as_count(fields.get("completion_tokens")),
        reasoning_tokens=as_count(reasoning),
        cache_read_tokens=as_count(cached),
    )
