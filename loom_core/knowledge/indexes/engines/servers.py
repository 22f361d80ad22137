"""Vectors, words and graphs in servers by URL: their settings, and what their adapters share."""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib import import_module
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import urlsplit

from pydantic import SecretStr

from loom_core import plugin_registry
from loom_core.errors import ConfigError, StoreUnavailableError
from loom_core.installation import how_to_install
from loom_core.keys import find_key, read_password
from loom_core.knowledge.interface import PassageVectors

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loom_core.knowledge.interface import LexicalServerIndex, RemoteGraphStore, VectorIndex
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.plugin_registry import PluginKind

__all__ = [
    "GRAPH",
    "INDEX_USE",
    "LEXICAL",
    "VECTORS",
    "ServerUse",
    "StoreKind",
    "check_setting",
    "find_secret",
    "import_client",
    "open_graph_store",
    "open_lexical_index",
    "open_vector_index",
    "save_setting",
    "split_batches",
    "split_setting",
    "unavailable",
]


@dataclass(frozen=True, slots=True)
class StoreKind:
    """A part of a knowledge base that may be in a server of the team's own.

    Attributes:
        plugin: kind of the plugins that connect to such servers.
        setting: name of its setting: in the store, in `RAGConfig`, as an option.
        local: its choices on this machine; the first one is the default.
        secret: environment variable, or entry of the keyring, with the server's password or API key.
        held: where something is, in words: `its vectors are searched`.
        server: what such a server is called.
        examples: the URL of each engine of Loom's own.
    """

    plugin: PluginKind
    setting: Literal["vectors", "lexical", "graph"]
    local: tuple[str, ...]
    secret: str
    held: str
    server: str
    examples: Mapping[str, str]

    def choice(self, store: KnowledgeStore) -> str:
        """Return the setting of a knowledge base. Blocks."""
        return store.get(self.setting) or self.local[0]


VECTORS = StoreKind(
    plugin="vector_index",
    setting="vectors",
    local=("auto", "exact", "chroma"),
    secret="LOOM_VECTORS_SECRET",
    held="vectors are searched",
    server="vector database",
    examples={
        "chroma": "http://localhost:8000",
        "milvus": "http://localhost:19530",
        "pgvector": "postgresql://localhost:5432/loom",
        "qdrant": "http://localhost:6333",
    },
)
"""Vectors: as their number asks for, all compared, by Chroma on this machine, or by a vector database."""

LEXICAL = StoreKind(
    plugin="lexical_index",
    setting="lexical",
    local=("tantivy",),
    secret="LOOM_LEXICAL_SECRET",
    held="words are searched",
    server="search engine",
    examples={"elasticsearch": "http://localhost:9200", "opensearch": "http://localhost:9200"},
)
"""Words: by tantivy on this machine, or by a search engine."""

GRAPH = StoreKind(
    plugin="graph_store",
    setting="graph",
    local=("kuzu", "none"),
    secret="LOOM_GRAPH_SECRET",
    held="the graph is",
    server="graph database",
    examples={"falkordb": "falkordb://localhost:6379"},
)
"""The graph: in Kùzu on this machine, only in the tables of the store, or in a graph database."""


@dataclass(frozen=True, slots=True)
class ServerUse:
    """Use that Loom makes of a server, for the advice in errors.

    Attributes:
        secret: where its password or API key is, as the end of a sentence.
        is_index: whether Loom writes an index there, and not only reads what others have written.
    """

    secret: str
    is_index: bool

    def address(self, engine: str, url: str) -> str:
        """Return an address of an engine as it is written for this use."""
        return f"{engine}+{url}" if self.is_index else url


INDEX_USE = ServerUse(
    f"{VECTORS.secret} in the environment, or in the keyring: keyring set loom {VECTORS.secret}",
    is_index=True,
)
"""Use as an index of the vectors of a knowledge base."""

_SETTING = re.compile(r"(?:([a-z][a-z0-9_-]*)\+)?(([a-z][a-z0-9_+.-]*)://.+)", re.IGNORECASE | re.DOTALL)


def split_setting(setting: str) -> tuple[str, str] | None:
    """Split `engine+url` into both; None where it is no such setting.

    A URL alone names its engine by its scheme.
    """
    match = _SETTING.fullmatch(setting)
    return None if match is None else ((match[1] or match[3]).lower(), match[2])


def check_setting(setting: str, kind: StoreKind) -> tuple[str, str]:
    """Return engine and URL of a setting `engine+url` that may be stored and shown.

    Raises:
        ConfigError: it is no such setting, there is no such engine, or it holds a password.
    """
    parts = split_setting(setting)
    if parts is None:
        named = setting.partition("+")[0].partition(":")[0]
        engine = named if named in kind.examples else list(kind.examples)[-1]
        example = kind.examples[engine]
        raise ConfigError(
            f"{setting[:60]!r} does not say where {kind.held}.",
            advice=f"Write {', '.join(kind.local)}; or a {kind.server} by its address, such as "
            f"{example if example.startswith(engine) else f'{engine}+{example}'}.",
        )
    engine, url = parts
    known = plugin_registry.list_registered(kind.plugin)
    if engine not in known:
        raise ConfigError(
            f"There is no {kind.server} {engine!r}.", advice=f"Choose one of: {', '.join(known)}."
        )
    if urlsplit(url).password is not None:
        raise ConfigError(
            f"The address of a {kind.server} must not hold a password, as it is stored and shown.",
            advice=f"Put the password into the environment variable {kind.secret}, or into the keyring: "
            f"keyring set loom {kind.secret}.",
        )
    return engine, url


def save_setting(store: KnowledgeStore, kind: StoreKind, setting: str, *, on_disk: bool) -> None:
    """Save where a part of a knowledge base is, where that is given.

    Raises:
        ConfigError: it is neither a choice on this machine nor the address of a server; or the knowledge base
            is in memory, and this part of it would be in a server.
    """
    if not setting or store.get(kind.setting) == setting:
        return
    if setting not in kind.local:
        check_setting(setting, kind)
        if not on_disk:
            raise ConfigError(
                f"A knowledge base in memory has no {kind.server}.", advice="Give it a name or a path."
            )
    store.set(kind.setting, setting)


def find_secret(kind: StoreKind) -> SecretStr | None:
    """Find the password or API key of a server; None if there is none. May read the keyring."""
    return read_password(kind.secret) or find_key(kind.secret)


def open_vector_index(
    setting: str, *, secret: SecretStr | None, collection: str, dimension: int
) -> VectorIndex:
    """Open the vector index that a setting `engine+url` names; it connects at first use.

    Raises:
        ConfigError: there is no such engine, its client is not installed, or the URL is none of its own.
    """
    engine, url = check_setting(setting, VECTORS)
    return plugin_registry.create(
        "vector_index", engine, url, secret=secret, collection=collection, dimension=dimension
    )


def open_lexical_index(setting: str, *, secret: SecretStr | None, collection: str) -> LexicalServerIndex:
    """Open the lexical index that a setting `engine+url` names; it connects at first use.

    Raises:
        ConfigError: there is no such engine, its client is not installed, or the URL is none of its own.
    """
    engine, url = check_setting(setting, LEXICAL)
    return plugin_registry.create("lexical_index", engine, url, secret=secret, collection=collection)


def open_graph_store(setting: str, *, secret: SecretStr | None, graph: str) -> RemoteGraphStore:
    """Open the graph that a setting names; it connects at first use.

    Raises:
        ConfigError: there is no such engine, its client is not installed, or the URL is none of its own.
    """
    engine, url = check_setting(setting, GRAPH)
    return plugin_registry.create("graph_store", engine, url, secret=secret, graph=graph)


def import_client(module: str, *, engine: str, extra: str) -> Any:  # noqa: ANN401 - modules of optional packages
    """Import the client of an engine, which is an optional package.

    Raises:
        ConfigError: it is not installed.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"{engine} needs the package {module.partition('.')[0]}, which is not installed.",
            advice=how_to_install(f"loom-mcp-core[{extra}]"),
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


def unavailable(
    engine: str, url: str, reason: str, *, advice: str = "", use: ServerUse = INDEX_USE
) -> StoreUnavailableError:
    """Return the error for a server that cannot be asked now.

    Args:
        engine: its name for people, such as `Qdrant`.
        url: its address, without credentials.
        reason: what happened, without a full stop.
        advice: what to do; by default, to look whether it runs.
        use: what Loom uses it for.
    """
    return StoreUnavailableError(
        f"{engine} at {url} cannot be asked: {reason}.",
        advice=advice
        or "Start it, or check its address"
        + ("; what it has missed is written once it answers. Nothing is lost." if use.is_index else "."),
    )
