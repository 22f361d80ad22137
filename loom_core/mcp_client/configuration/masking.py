"""Masking of secrets anywhere in a server's entry, for display."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, cast
from urllib.parse import urlsplit

from loom_core.jsonc import object_of
from loom_core.mcp_client.configuration.expansion import is_secret_name

__all__ = ["HIDDEN", "is_literal_secret", "literal_secrets", "mask_arguments", "mask_entry", "mask_url"]

HIDDEN = "…"

_REFERENCE = re.compile(
    r"(?:(?i:Basic|Bearer|Token) +)?(?:\$\{[A-Za-z_][A-Za-z0-9_]*(:-[^{}]*)?\}|(?:env|keyring):\S+)"
)
_LIKE_A_KEY = re.compile(r"(?=[\w~+/=-]*[0-9])(?=[\w~+/=-]*[A-Za-z])[\w~+/=-]{20,}", re.ASCII)
_ASSIGNED = re.compile(r"(--?)?([\w.-]+)(=|: *)(.+)", re.DOTALL)
_OPTION = re.compile(r"--?[\w-]+")
_VALUES = ("env", "headers")


def mask_url(url: str) -> str:
    """Mask the user, password, query values and key-like path segments of a URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return HIDDEN
    host = parts.netloc.rpartition("@")[2]
    path = "/".join(HIDDEN if _LIKE_A_KEY.fullmatch(part) else part for part in parts.path.split("/"))
    return f"{parts.scheme}://{host}{path}{f'?{HIDDEN}' if parts.query else ''}"


def mask_arguments(arguments: Sequence[object]) -> list[str]:
    """Mask the arguments of a command whose option or name says that they are secret."""
    shown: list[str] = []
    secret = False
    for argument in map(str, arguments):
        follows, secret = secret, bool(_OPTION.fullmatch(argument)) and is_secret_name(argument)
        shown.append(_mask_value(argument) if follows else _mask_argument(argument))
    return shown


def mask_entry(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Mask possible secrets in an entry with `…`. References are shown."""
    return {key: _mask_member(key, value) for key, value in entry.items()}


def is_literal_secret(name: str, value: object) -> bool:
    """Return whether a variable or header likely contains a literal secret instead of a reference."""
    return is_secret_name(name) and isinstance(value, str) and value != "" and not _REFERENCE.fullmatch(value)


def literal_secrets(entry: Mapping[str, Any]) -> list[str]:
    """Return the paths of likely literal secrets in an entry, such as `env.API_KEY`."""
    found = [
        f"{section}.{name}"
        for section in _VALUES
        for name, value in object_of(entry.get(section)).items()
        if is_literal_secret(name, value)
    ]
    arguments: object = entry.get("args")
    if isinstance(arguments, list):
        written = cast("list[object]", arguments)
        both = enumerate(zip(map(str, written), mask_arguments(written), strict=True))
        found += [f"args.{i}" for i, (ours, shown) in both if shown != ours and "://" not in ours]
    if isinstance(url := entry.get("url"), str) and "@" in url.partition("//")[2].partition("/")[0]:
        found.append("url")
    return found


def _mask_member(key: str, value: object) -> object:
    if key in _VALUES:
        return {name: _mask_value(each) for name, each in object_of(value).items()}
    if key == "args" and isinstance(value, list):
        return mask_arguments(cast("list[object]", value))
    if isinstance(value, str) and key.lower().endswith("url"):
        return mask_url(value)
    if isinstance(value, dict):
        members = cast("dict[str, object]", value).items()
        return {name: _mask_member(name, each) for name, each in members}
    return HIDDEN if isinstance(value, str) and is_secret_name(key) and key != "auth" else value


def _mask_value(value: object) -> str:
    """Mask a value that may be secret; a reference is shown without its default."""
    reference = _REFERENCE.fullmatch(value) if isinstance(value, str) else None
    if reference is None:
        return HIDDEN
    return reference[0].replace(reference[1], f":-{HIDDEN}") if reference[1] else reference[0]


def _mask_argument(argument: str) -> str:
    if "://" in argument and (address := re.match(r"(.*?)([a-zA-Z][\w+.-]*://\S*)(.*)", argument, re.DOTALL)):
        return f"{address[1]}{mask_url(address[2])}{address[3]}"
    if (assigned := _ASSIGNED.fullmatch(argument)) and is_secret_name(assigned[2]):
        return f"{assigned[1] or ''}{assigned[2]}{assigned[3]}{_mask_value(assigned[4])}"
    return HIDDEN if _LIKE_A_KEY.fullmatch(argument) and "/" not in argument else argument
