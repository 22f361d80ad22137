"""The plugin registry behind `loom_core.plugins`; it imports none of the types that it creates."""

from __future__ import annotations

import logging
import threading
from importlib import import_module
from inspect import signature
from typing import TYPE_CHECKING, Any, Literal, TypeVar, get_args

from loom_core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from importlib.metadata import EntryPoint
    from inspect import Signature

    Factory = Callable[..., object]

__all__ = ["PluginKind", "create", "list_registered", "register"]

_log = logging.getLogger(__name__)

PluginKind = Literal[
    "compressor",
    "graph_store",
    "lexical_index",
    "llm",
    "memory",
    "reranker",
    "retriever",
    "tool",
    "vector_index",
]
"""Kinds of plugins: `RemoteGraphStore`, `LexicalServerIndex`, `Retriever`, `Reranker` and `VectorIndex` of
`loom_core.knowledge.interface`, `LLMProvider` of `loom_core.llm.interface`, `Memory` of
`loom_core.runs.memory`, `Compressor` of `loom_core.runs.compressor`, `Tool` of
`loom_core.tools.interface`."""

_GROUP = "loom.plugins"

# Loom's own plugins, by the module that registers them; it is imported on demand.
_RETRIEVERS = "loom_core.knowledge.retrieval.retrievers"
_COLLECTIONS = "loom_core.knowledge.sources.collections.retrievers"
_RERANKERS = "loom_core.knowledge.retrieval.rerankers"
_TOOLS = "loom_core.tools.builtin"
_ENGINES = "loom_core.knowledge.indexes.engines"
_BUILT_IN: Mapping[PluginKind, Mapping[str, str]] = {
    "compressor": {},
    "graph_store": {"falkordb": f"{_ENGINES}.falkordb"},
    "lexical_index": {
        "elasticsearch": f"{_ENGINES}.elasticsearch",
        "opensearch": f"{_ENGINES}.elasticsearch",
    },
    "llm": {"mock": "loom_core.llm.mock"},  # vendors are rows of loom_core.llm.vendors
    "memory": {"in_memory": "loom_core.runs.memory", "sqlite": "loom_core.runs.memory"},
    "retriever": {
        "bm25": f"{_RETRIEVERS}.single_channel",
        "decomposition": f"{_RETRIEVERS}.expanding",
        "dense": f"{_RETRIEVERS}.single_channel",
        "fusion": f"{_RETRIEVERS}.fusion",
        "graph": f"{_RETRIEVERS}.single_channel",
        "hybrid": f"{_RETRIEVERS}.fusion",
        "hyde": f"{_RETRIEVERS}.expanding",
        "keyword": f"{_RETRIEVERS}.single_channel",
        "knowledge_base": f"{_RETRIEVERS}.knowledge_base",
        "llama_bm25": _COLLECTIONS,
        "llama_dense": _COLLECTIONS,
        "llama_hybrid": _COLLECTIONS,
        "multi_query": f"{_RETRIEVERS}.expanding",
    },
    "reranker": {
        "api": f"{_RERANKERS}.api",
        "cross_encoder": f"{_RERANKERS}.cross_encoder",
        "features": f"{_RERANKERS}.features",
        "llm": f"{_RERANKERS}.llm",
    },
    "tool": {
        "edit_file": f"{_TOOLS}.write_file",
        "http_get": f"{_TOOLS}.http_request",
        "http_request": f"{_TOOLS}.http_request",
        "list_files": f"{_TOOLS}.list_files",
        "read_file": f"{_TOOLS}.read_file",
        "search_files": f"{_TOOLS}.search_files",
        "shell": f"{_TOOLS}.shell",
        "write_file": f"{_TOOLS}.write_file",
    },
    "vector_index": {
        "chroma": f"{_ENGINES}.chroma_server",
        "milvus": f"{_ENGINES}.milvus",
        "pgvector": f"{_ENGINES}.pgvector",
        "qdrant": f"{_ENGINES}.qdrant",
    },
}

_F = TypeVar("_F", bound="Factory")


def register(kind: PluginKind, name: str) -> Callable[[_F], _F]:
    """Return a decorator that registers a class or function as the factory of a plugin.

    Args:
        kind: kind of plugin that it creates.
        name: the name to create it by.

    Raises:
        ConfigError: the name is taken by something else, or there is no such kind.
    """

    def add(factory: _F) -> _F:
        _registry.add(kind, name, factory)
        return factory

    return add


def create(kind: PluginKind, name: str, *args: object, **params: object) -> Any:  # noqa: ANN401 - it lies below the types of what it makes
    """Create the plugin that is registered under a name; `loom_core.plugins.create` adds types.

    Args:
        kind: kind of the plugin.
        name: the name it is registered under.
        args: positional arguments of its constructor, such as the sources of a retriever.
        params: keyword arguments of its constructor.

    Raises:
        ConfigError: there is no such name, or the arguments do not fit the constructor.
    """
    factory = _registry.get(kind, name)
    accepted = signature(factory)
    try:
        accepted.bind(*args, **params)
    except TypeError as error:
        raise ConfigError(
            f"The {kind} {name!r} cannot be made: {error}.", advice=f"It takes: {_format_names(accepted)}."
        ) from None
    return factory(*args, **params)


def list_registered(kind: PluginKind, *, built_in: bool = True) -> list[str]:
    """List the names that `create` knows, sorted.

    Args:
        kind: kind of the plugins.
        built_in: whether to list Loom's own, too.

    Raises:
        ConfigError: there is no such kind.
    """
    return _registry.names(kind, built_in=built_in)


class _Registry:
    """The registered plugins, and whether those of other distributions have been loaded."""

    def __init__(self) -> None:
        self._factories: dict[tuple[PluginKind, str], Factory] = {}
        self._others_loaded = False
        self._loading = (
            threading.RLock()
        )  # reentrant: a plugin may call `list_registered` while it is imported

    def add(self, kind: PluginKind, name: str, factory: Factory) -> None:
        home = _load_built_in(kind).get(name)
        taken = self._factories.get((kind, name))
        if taken is factory:
            return
        if taken is not None or home not in {None, factory.__module__}:
            raise ConfigError(
                f"The {kind} name {name!r} is taken, so {factory.__module__} cannot register it.",
                advice="Register it under another name.",
            )
        self._factories[kind, name] = factory

    def get(self, kind: PluginKind, name: str) -> Factory:
        home = _load_built_in(kind).get(name)
        if home is not None:
            import_module(home)
        elif (kind, name) not in self._factories:
            self._load_others()
        try:
            return self._factories[kind, name]
        except KeyError:
            known = ", ".join(self.names(kind))
            advice = f"Choose one of: {known}." if known else f"Add its distribution: no {kind} is installed."
            raise ConfigError(f"There is no {kind} {name!r}.", advice=advice) from None

    def names(self, kind: PluginKind, *, built_in: bool = True) -> list[str]:
        own = _load_built_in(kind).keys()
        self._load_others()
        registered = {name for of, name in self._factories if of == kind}
        return sorted(own | registered if built_in else registered - own)

    def _load_others(self) -> None:
        from importlib.metadata import entry_points  # 20 ms that most programs never need

        with self._loading:
            if self._others_loaded:
                return
            self._others_loaded = True
            for entry_point in entry_points(group=_GROUP):
                _load(entry_point)


def _load_built_in(kind: PluginKind) -> Mapping[str, str]:
    if kind not in _BUILT_IN:
        raise ConfigError(
            f"There is no kind of plugin {kind!r}.",
            advice=f"Choose one of: {', '.join(get_args(PluginKind))}.",
        )
    return _BUILT_IN[kind]


def _load(entry_point: EntryPoint) -> None:
    try:
        loaded = entry_point.load()
        if callable(loaded):
            loaded()
    except (Exception, SystemExit):  # noqa: BLE001 - other people's code may do anything and must not stop Loom
        _log.warning(
            "The plugin %r (%s) was passed over.", entry_point.name, entry_point.value, exc_info=True
        )


def _format_names(accepted: Signature) -> str:
    return ", ".join(
        str(parameter.replace(annotation=parameter.empty)) for parameter in accepted.parameters.values()
    )


_registry = _Registry()
