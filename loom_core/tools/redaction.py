"""Redaction of arguments for logs and the audit: no secrets, limited length."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic import SecretStr

from loom_core.redaction import SECRET, Redaction, is_secret_name, item_names, member_names

__all__ = ["arguments_digest", "redact_arguments"]

_LONGEST = 1000  # characters of one text
_MOST = 20_000  # characters of all arguments
_DEEPEST = 12
_LEAST_SECRET = 1000  # a smaller number is no secret: `token: 5` counts something


def arguments_digest(arguments: Mapping[str, Any], secrets: Iterable[SecretStr] = ()) -> str:
    """Return the SHA-256 of arguments in hexadecimal, the same for the same arguments in any order.

    Secrets count as `[secret]`: the digest of a short one, such as a code of six digits, would reveal it.

    Args:
        arguments: arguments of a call, JSON.
        secrets: further known secrets, in addition to those that this process knows.
    """
    redaction = Redaction.now(secrets, assigned=True)
    told = {name: _redact(name, value, redaction, None) for name, value in arguments.items()}
    text = json.dumps(told, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def redact_arguments(
    arguments: Mapping[str, Any], secrets: Iterable[SecretStr] = (), *, whole: bool = False
) -> dict[str, Any]:
    """Return a copy of arguments with `[secret]` for secrets, by name or value, and long values cut.

    Args:
        arguments: arguments of a call, JSON.
        secrets: further known secrets, in addition to those that this process knows.
        whole: whether nothing is cut.
    """
    redaction = Redaction.now(secrets, assigned=True)
    depth = None if whole else 0
    told = {name: _redact(name, value, redaction, depth) for name, value in arguments.items()}
    if whole:
        return told
    text = json.dumps(told, ensure_ascii=False, default=repr)
    return told if len(text) <= _MOST else {"…": f"{text[:_MOST]}… [{len(text):,} characters]"}


def _redact(name: str, value: object, redaction: Redaction, depth: int | None) -> object:
    """Redact a value; `depth` is its nesting depth, None for a copy without cuts."""
    if isinstance(value, str):
        if is_secret_name(name):
            return SECRET
        text = redaction.text(value)
        whole = depth is None or len(text) <= _LONGEST
        return text if whole else f"{text[:_LONGEST]}… [{len(text):,} characters]"
    if depth is not None:
        if depth > _DEEPEST:
            return "…"
        depth += 1
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value).items()
        return {
            redaction.text(key): _redact(f"{name} {called}", each, redaction, depth)
            for (key, each), called in zip(members, member_names(members), strict=True)
        }
    if isinstance(value, list | tuple):
        items = cast("list[object]", value)
        return [
            _redact(f"{name} {called}", each, redaction, depth)
            for called, each in zip(item_names(items), items, strict=True)
        ]
    if isinstance(value, int | float) and abs(value) >= _LEAST_SECRET:
        return SECRET if is_secret_name(name) else value
    return value
