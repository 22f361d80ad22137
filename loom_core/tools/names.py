"""Names of tools: a server's tool is `server:tool` for people and `server__tool` for models.

The name for models depends on the display name alone, so it is the same after a restart and in any order of
tools. It is never parsed: it is looked up in a table.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable

__all__ = ["closest", "display_name", "own_wire_name", "wire_name"]

_LONGEST = 64
_COMPARED = 200  # characters of a misspelt name; a longer one is like none
_BETWEEN = "__"
_HASHED = 15  # hexadecimal digits: 60 bits, and no plain name ends like this
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_OTHERS = re.compile(r"[^A-Za-z0-9-]+")
_LIKE_HASHED = re.compile(rf"_[0-9a-f]{{{_HASHED}}}\Z")


def display_name(server: str, tool: str) -> str:
    """Return the display name of a tool, such as `files:read` or `文件:读取`; split at the first colon."""
    return f"{server}:{tool}"


def wire_name(server: str, tool: str) -> str:
    """Return the name of a tool for models: `[A-Za-z0-9_-]`, at most 64 characters, unique for each tool.

    It is `server__tool` if that is valid and unambiguous. Else it is the valid part of that, and a hash: for
    other scripts, for long names, and for names with the separator in them.
    """
    name = f"{server}{_BETWEEN}{tool}"
    if _says_itself(server, tool) and len(name) <= _LONGEST and not _LIKE_HASHED.search(name):
        return name
    readable = f"{_readable(server, 'server')}{_BETWEEN}{_readable(tool, 'tool')}"
    return f"{readable[: _LONGEST - _HASHED - 1].rstrip('_')}_{_hash(server, tool)}"


def own_wire_name(name: str) -> str:
    """Return the name for models of a local tool: its name, if no server's tool can have it."""
    plain = _PLAIN.fullmatch(name) is not None and _BETWEEN not in name and not _LIKE_HASHED.search(name)
    if plain and len(name) <= _LONGEST:
        return name
    return f"{_readable(name, 'tool')[: _LONGEST - _HASHED - 1].rstrip('_')}_{_hash('', name)}"


def _says_itself(server: str, tool: str) -> bool:
    return (
        _PLAIN.fullmatch(server) is not None
        and _PLAIN.fullmatch(tool) is not None
        and _BETWEEN not in server
        and not server.endswith("_")
        and not tool.startswith("_")
    )


def _readable(text: str, otherwise: str) -> str:
    return _OTHERS.sub("_", text).strip("_") or otherwise


def _hash(server: str, tool: str) -> str:
    # The server's length first: no two pairs give the same text.
    text = f"{len(server)}:{server}{tool}".encode("utf-8", "surrogatepass")
    return hashlib.sha256(text).hexdigest()[:_HASHED]


def closest(name: str, names: Iterable[str]) -> str:
    """Return `, did you mean …` for a misspelt name, or an empty text."""
    found = difflib.get_close_matches(name[:_COMPARED], list(names), n=1)
    return f", did you mean `{found[0]}`" if found else ""
