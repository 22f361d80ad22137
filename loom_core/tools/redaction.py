"""Arguments as they may be written down: without secrets, and not endless."""

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
_LEAST_SECRET = 1000  # a number below is none: `token: 5` counts something


def arguments_digest(arguments: Mapping[str, Any], secrets: Iterable[SecretStr] = ()) -> str:
    """SHA-256 of arguments, the same for the same arguments in whatever order, as hexadecimal digits.

    Secrets count as `[secret]`: of a short one, such as a code of six digits, a digest would tell all.

    Args:
        arguments: of a call; JSON.
        secrets: known ones, wherever they stand, beside those that this process knows anyway.
    """
    redaction = Redaction.now(secrets, assigned=True)
    told = {name: _redact(name, value, redaction, None) for name, value in arguments.items()}
    text = json.dumps(told, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def redact_arguments(
    arguments: Mapping[str, Any], secrets: Iterable[SecretStr] = (), *, whole: bool = False
) -> dict[str, Any]:
    """A copy of arguments with `[secret]` for what is called a secret or is a known one; what is long is cut.

    Args:
        arguments: of a call; JSON.
        secrets: known ones, wherever they stand, beside those that this process knows anyway.
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
    """A value without secrets; `depth` is where it stands, None for a copy in which nothing is cut."""
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
