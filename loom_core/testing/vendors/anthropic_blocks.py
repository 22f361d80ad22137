"""Which content blocks Anthropic takes."""

from __future__ import annotations

import re
from collections.abc import Mapping

from loom_core.testing.vendors.json_fields import Json, mapping, mappings
from loom_core.testing.vendors.memory import signature
from loom_core.testing.vendors.refusal import Refused

__all__ = ["REDACTED", "anthropic_signature", "check_block"]

REDACTED = signature("anthropic", "a thought that nobody reads")
"""The data of every block of thinking that cannot be read."""

_ROLES: Mapping[str, str] = {
    "text": "user assistant",
    "image": "user",
    "tool_result": "user",
    "tool_use": "assistant",
    "thinking": "assistant",
    "redacted_thinking": "assistant",
}
_FIELDS: Mapping[str, frozenset[str]] = {
    "text": frozenset({"text", "citations"}),
    "image": frozenset({"source"}),
    "tool_result": frozenset({"tool_use_id", "content", "is_error"}),
    "tool_use": frozenset({"id", "name", "input"}),
    "thinking": frozenset({"thinking", "signature"}),
    "redacted_thinking": frozenset({"data"}),
}
_IMAGES = frozenset({"image/jpeg", "image/png", "image/gif", "image/webp"})
_ID = re.compile(r"[a-zA-Z0-9_-]+")
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,200}")


def anthropic_signature(thinking: str) -> str:
    """What Anthropic signs a thought with."""
    return signature("anthropic", thinking)


def check_block(block: Json, role: str, where: str) -> None:
    """Refuse a block that Anthropic refuses.

    Raises:
        Refused: why.
    """
    kind = block.get("type")
    if not isinstance(kind, str) or kind not in _ROLES:
        raise Refused(
            f"{where}: Input tag {kind!r} found using 'type' does not match any of the expected tags"
        )
    if role not in _ROLES[kind].split():
        raise Refused(f"{where}: `{kind}` blocks can not be in `{role}` messages")
    if unknown := sorted(set(block) - _FIELDS[kind] - {"type", "cache_control"}):
        raise Refused(f"{where}.{kind}.{unknown[0]}: Extra inputs are not permitted")
    match kind:
        case "text":
            _check_text(block)
        case "image":
            _check_image(block, where)
        case "tool_use":
            _check_call(block, where)
        case "tool_result":
            _check_result(block, where)
        case "thinking":
            if not isinstance(block.get("signature"), str):
                raise Refused(f"{where}.thinking.signature: Field required")
            if block["signature"] != anthropic_signature(str(block.get("thinking"))):
                raise Refused(f"{where}: Invalid `signature` in `thinking` block")
        case _:
            if block.get("data") != REDACTED:
                raise Refused(f"{where}: Invalid `data` in `redacted_thinking` block")


def _check_text(block: Json) -> None:
    text = block.get("text")
    if not isinstance(text, str) or not text:
        raise Refused("messages: text content blocks must be non-empty")
    if not text.strip():
        raise Refused("messages: text content blocks must contain non-whitespace text")


def _check_image(block: Json, where: str) -> None:
    source = mapping(block, "source")
    match source.get("type"):
        case "base64":
            if source.get("media_type") not in _IMAGES:
                raise Refused(
                    f"{where}.image.source.base64.media_type: Input should be one of {sorted(_IMAGES)}"
                )
            if not source.get("data"):
                raise Refused(f"{where}.image.source.base64.data: image cannot be empty")
        case "url":
            if not str(source.get("url", "")).startswith("https://"):
                raise Refused(f"{where}.image.source.url: Only HTTPS URLs are supported.")
        case kind:
            raise Refused(f"{where}.image.source: Input tag {kind!r} does not match any of the expected tags")


def _check_call(block: Json, where: str) -> None:
    if not _ID.fullmatch(str(block.get("id", ""))):
        raise Refused(f"{where}.tool_use.id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    if not _NAME.fullmatch(str(block.get("name", ""))):
        raise Refused(f"{where}.tool_use.name: String should match pattern '^[a-zA-Z0-9_-]{{1,200}}$'")
    if not isinstance(block.get("input"), Mapping):
        raise Refused(f"{where}.tool_use.input: Input should be a valid dictionary")


def _check_result(block: Json, where: str) -> None:
    if not _ID.fullmatch(str(block.get("tool_use_id", ""))):
        raise Refused(f"{where}.tool_result.tool_use_id: String should match pattern '^[a-zA-Z0-9_-]+$'")
    content = block.get("content", "")
    if isinstance(content, str):
        return
    for number, inner in enumerate(mappings(block, "content")):
        if inner.get("type") not in {"text", "image"}:
            raise Refused(
                f"{where}.tool_result.content.{number}: Input tag {inner.get('type')!r} is not expected"
            )
        if block.get("is_error") and inner["type"] != "text":
            raise Refused(f'{where}.tool_result: all content must be type "text" if `is_error` is true')
        check_block(inner, "user", f"{where}.tool_result.content.{number}")
