"""Arguments as they may be written down: without secrets, and not endless."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, cast

from pydantic import SecretStr

from loom_core.keys import redacted

__all__ = ["arguments_digest", "redacted_arguments"]

_SECRET = "[secret]"
_LONGEST = 1000  # characters of one text
_MOST = 20_000  # characters of all arguments
_DEEPEST = 12
_LEAST_SECRET = 1000  # a number below is none: `token: 5` counts something
_SECRET_NAME = re.compile(
    r"pass(word|wd|phrase|code)|(?<![a-z])pwd|secret|credential|authorization|cookie|bearer"
    r"|(?<![a-z])(api|access|private|signing|encryption)[-_ ]?key"
    r"|(?<![a-z])(auth|access|refresh|id|api|bot)?[-_ ]?token(?!s|iz)|密码|口令|密钥|私钥|令牌|凭证|验证码",
    re.IGNORECASE,
)
_HUMP = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")


def arguments_digest(arguments: Mapping[str, Any], secrets: Iterable[SecretStr] = ()) -> str:
    """SHA-256 of arguments, the same for the same arguments in whatever order, as hexadecimal digits.

    Secrets count as `[secret]`: of a short one, such as a code of six digits, a digest would tell all.

    Args:
        arguments: of a call; JSON.
        secrets: known ones, wherever they stand.
    """
    known = tuple(secrets)
    told = {name: _redacted(name, value, known, None) for name, value in arguments.items()}
    text = json.dumps(told, sort_keys=True, ensure_ascii=False, separators=(",", ":"), default=repr)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def redacted_arguments(arguments: Mapping[str, Any], secrets: Iterable[SecretStr] = ()) -> dict[str, Any]:
    """A copy of arguments with `[secret]` for what is called a secret or is a known one; what is long is cut.

    Args:
        arguments: of a call; JSON.
        secrets: known ones, wherever they stand.
    """
    known = tuple(secrets)
    told = {name: _redacted(name, value, known, 0) for name, value in arguments.items()}
    text = json.dumps(told, ensure_ascii=False, default=repr)
    return told if len(text) <= _MOST else {"…": f"{text[:_MOST]}… [{len(text):,} characters]"}


def _redacted(name: str, value: object, secrets: tuple[SecretStr, ...], depth: int | None) -> object:
    """A value without secrets; `depth` is where it stands, None for a copy in which nothing is cut."""
    if isinstance(value, str):
        if _SECRET_NAME.search(_HUMP.sub("_", name)):
            return _SECRET
        text = redacted(value, secrets)
        whole = depth is None or len(text) <= _LONGEST
        return text if whole else f"{text[:_LONGEST]}… [{len(text):,} characters]"
    if depth is not None:
        if depth > _DEEPEST:
            return "…"
        depth += 1
    if isinstance(value, Mapping):
        members = cast("Mapping[str, object]", value).items()
        return {
            redacted(key, secrets): _redacted(f"{name} {key}", each, secrets, depth) for key, each in members
        }
    if isinstance(value, list | tuple):
        return [_redacted(name, each, secrets, depth) for each in cast("list[object]", value)]
    if isinstance(value, int | float) and abs(value) >= _LEAST_SECRET:
        return _SECRET if _SECRET_NAME.search(_HUMP.sub("_", name)) else value
    return value
