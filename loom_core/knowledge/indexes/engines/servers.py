"""Vector databases by URL: the setting `engine+url`, and what their adapters share."""

from __future__ import annotations

import os
import re
from importlib import import_module
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from pydantic import SecretStr

from loom_core import plugin_registry
from loom_core.errors import ConfigError, StoreUnavailableError
from loom_core.keys import find_key, register_secret
from loom_core.knowledge.interface import PassageVectors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loom_core.knowledge.interface import VectorIndex

__all__ = [
    "LOCAL_CHOICES",
    "SECRET_VARIABLE",
    "check_setting",
    "find_secret",
    "import_client",
    "open_vector_index",
    "split_batches",
    "split_setting",
    "unavailable",
]

SECRET_VARIABLE = "LOOM_VECTORS_SECRET"
"""Environment variable, or entry of the keyring, with the password or API key of the vector database."""

LOCAL_CHOICES = ("auto", "exact", "chroma")
"""How vectors are searched on this machine: by their number, every one compared, or by Chroma's index."""

_EXAMPLES = {
    "chroma": "http://localhost:8000",
    "milvus": "http://localhost:19530",
    "pgvector": "postgresql://localhost:5432/loom",
    "qdrant": "http://localhost:6333",
}
_SETTING = re.compile(r"([a-z][a-z0-9_-]*)\+([a-z][a-z0-9+.-]*://.+)", re.IGNORECASE | re.DOTALL)


def split_setting(setting: str) -> tuple[str, str] | None:
    """Split `engine+url` into both; None where it is no such setting."""
    match = _SETTING.fullmatch(setting)
    return None if match is None else (match[1].lower(), match[2])


def check_setting(setting: str) -> tuple[str, str]:
    """Return engine and URL of a setting `engine+url` that may be stored and shown.

    Raises:
        ConfigError: it is no such setting, there is no such engine, or it holds a password.
    """
    parts = split_setting(setting)
    if parts is None:
        named = setting.partition("+")[0].partition(":")[0]
        engine = named if named in _EXAMPLES else "qdrant"
        raise ConfigError(
            f"{setting[:60]!r} does not say where vectors are searched.",
            advice=f"Write {', '.join(LOCAL_CHOICES)}; or a vector database as its engine, a plus sign and "
            f"its URL, such as {engine}+{_EXAMPLES[engine]}.",
        )
    engine, url = parts
    known = plugin_registry.list_registered("vector_index")
    if engine not in known:
        raise ConfigError(
            f"There is no vector database {engine!r}.", advice=f"Choose one of: {', '.join(known)}."
        )
    if urlsplit(url).password is not None:
        raise ConfigError(
            "The address of a vector database must not hold a password, as it is stored and shown.",
            advice=f"Put the password into the environment variable {SECRET_VARIABLE}, or into the keyring: "
            f"keyring set loom {SECRET_VARIABLE}.",
        )
    return engine, url


def find_secret() -> SecretStr | None:
    """Find the password or API key of the vector database; None if there is none. May read the keyring."""
    given = os.environ.get(SECRET_VARIABLE, "")
    # Passwords may hold blanks and any letters; engines that send the secret in a header check that.
    return register_secret(SecretStr(given)) if given else find_key(SECRET_VARIABLE)


def open_vector_index(
    setting: str, *, secret: SecretStr | None, collection: str, dimension: int
) -> VectorIndex:
    """Open the vector index that a setting `engine+url` names; it connects at first use.

    Raises:
        ConfigError: there is no such engine, its client is not installed, or the URL is none of its own.
    """
    engine, url = check_setting(setting)
    return plugin_registry.create(
        "vector_index", engine, url, secret=secret, collection=collection, dimension=dimension
    )


def import_client(module: str, *, engine: str, extra: str) -> Any:  # noqa: ANN401 - modules of optional packages
    """Import the client of an engine, which is an optional package.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"Vectors in {engine} need the package {module.partition('.')[0]}, which is not installed.",
            advice=f"Install it: uv pip install 'loom-mcp-core[{extra}]', or pip install 'loom-kb[{extra}]'.",
        ) from error


def split_batches(passages: PassageVectors, size: int) -> Iterator[PassageVectors]:
    """Yield passages in batches; of a repeated key the last one counts."""
    last = {key: row for row, key in enumerate(passages.keys)}
    rows = list(last.values())
    for start in range(0, len(rows), size):
        chosen = rows[start : start + size]
        yield PassageVectors(
            keys=[passages.keys[row] for row in chosen],
            vectors=passages.vectors[chosen],
            languages=[passages.languages[row] for row in chosen],
            documents=[passages.documents[row] for row in chosen],
        )


def unavailable(engine: str, url: str, reason: str, *, advice: str = "") -> StoreUnavailableError:
    """Return the error for a server that cannot be asked now.

    Args:
        engine: its name for people, such as `Qdrant`.
        url: its address, without credentials.
        reason: what happened, without a full stop.
        advice: what to do; by default, to look whether it runs.
    """
    return StoreUnavailableError(
        f"{engine} at {url} cannot be asked: {reason}.",
        advice=advice
        or "Start it, or check its address; what it has missed is written once it answers. Nothing is lost.",
    )
