"""What tools are called: `server:tool` by people and `server__tool` by models where they are a server's.

The name for models is found from what people call a tool alone, so it is the same after a restart and in
whatever order tools come. It is never taken apart again: it is looked up in a table.
"""

from __future__ import annotations

import hashlib
import re

__all__ = ["display_name", "own_wire_name", "wire_name"]

_LONGEST = 64
_BETWEEN = "__"
_HASHED = 15  # hexadecimal digits: 60 bits, and no word of any language ends a plain name so
_PLAIN = re.compile(r"[A-Za-z0-9_-]+")
_OTHERS = re.compile(r"[^A-Za-z0-9-]+")
_LIKE_HASHED = re.compile(rf"_[0-9a-f]{{{_HASHED}}}\Z")


def display_name(server: str, tool: str) -> str:
    """What people call a tool, such as `files:read` or `文件:读取`; it splits at the first colon."""
    return f"{server}:{tool}"


def wire_name(server: str, tool: str) -> str:
    """What models call a tool: `[A-Za-z0-9_-]`, at most 64 characters, another one for each tool.

    It is `server__tool` where that is possible and can mean no other tool. Else it is what can be read of
    that, and a hash: for other scripts, for long names, and for names with the separator in them.
    """
    name = f"{server}{_BETWEEN}{tool}"
    if _says_itself(server, tool) and len(name) <= _LONGEST and not _LIKE_HASHED.search(name):
        return name
    readable = f"{_readable(server, 'server')}{_BETWEEN}{_readable(tool, 'tool')}"
    return f"{readable[: _LONGEST - _HASHED - 1].rstrip('_')}_{_hash(server, tool)}"


def own_wire_name(name: str) -> str:
    """What models call a tool that is no server's: its name where no server's tool can have it."""
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
