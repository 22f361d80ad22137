"""Plugins: implementations by kind and name, from Loom and from other distributions.

Other distributions add theirs by an entry point of the group `loom.plugins`. It names a module, which is
imported so that its `@register` decorators run, or a callable, which is called without arguments:

    [project.entry-points."loom.plugins"]
    my-retriever = "my_package.retriever"
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Literal, TypeVar, cast, overload

from loom_core import plugin_registry
from loom_core.plugin_registry import PluginKind, list_registered, register

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from loom_core.knowledge.interface import (
        LexicalServerIndex,
        PassageSource,
        RemoteGraphStore,
        Reranker,
        Retriever,
        VectorIndex,
    )
    from loom_core.llm.interface import LLMProvider
    from loom_core.runs.compressor import Compressor
    from loom_core.runs.memory import Memory
    from loom_core.tools.interface import Tool

__all__ = ["PluginKind", "PluginRegistry", "create", "list_registered", "register"]

_F = TypeVar("_F", bound="Callable[..., object]")


@overload
def create(kind: Literal["compressor"], name: str, *args: object, **params: object) -> Compressor: ...
@overload
def create(kind: Literal["graph_store"], name: str, *args: object, **params: object) -> RemoteGraphStore: ...
@overload
def create(
    kind: Literal["lexical_index"], name: str, *args: object, **params: object
) -> LexicalServerIndex: ...
@overload
def create(kind: Literal["llm"], name: str, *args: object, **params: object) -> LLMProvider: ...
@overload
def create(kind: Literal["memory"], name: str, *args: object, **params: object) -> Memory: ...
@overload
def create(kind: Literal["reranker"], name: str, *args: object, **params: object) -> Reranker: ...
@overload
def create(kind: Literal["retriever"], name: str, *args: object, **params: object) -> Retriever: ...
@overload
def create(kind: Literal["tool"], name: str, *args: object, **params: object) -> Tool: ...
@overload
def create(kind: Literal["vector_index"], name: str, *args: object, **params: object) -> VectorIndex: ...
def create(kind: PluginKind, name: str, *args: object, **params: object) -> object:
    """Create the plugin that is registered under a name.

    Args:
        kind: kind of the plugin.
        name: the name it is registered under.
        args: positional arguments of its constructor, such as the sources of a retriever.
        params: keyword arguments of its constructor.

    Raises:
        ConfigError: there is no such name, or the arguments do not fit the constructor.
    """
    return plugin_registry.create(kind, name, *args, **params)


class PluginRegistry:
    """`register` and `create` by the name of the kind: `@PluginRegistry.register_tool("clock")`.

    A facade: all instances share the one registry of the process.

        operator_registry = PluginRegistry([knowledge_base])
        retriever = operator_registry.get("retriever", "hybrid")(dense_weight=0.6, sparse_weight=0.4)

    Args:
        sources: sources for the retrievers that `get` creates.
    """

    def __init__(self, sources: Sequence[PassageSource] = ()) -> None:
        self._sources = sources

    def get(self, kind: PluginKind, name: str) -> Callable[..., Any]:
        """Return the factory of a plugin, which takes its parameters; retrievers search the `sources`."""
        make = cast("Callable[..., Any]", create)
        return partial(make, kind, name, self._sources) if kind == "retriever" else partial(make, kind, name)

    @staticmethod
    def register_llm(name: str) -> Callable[[_F], _F]:
        """See `register`."""
        return register("llm", name)

    @staticmethod
    def register_memory(name: str) -> Callable[[_F], _F]:
        """See `register`."""
        return register("memory", name)

    @staticmethod
    def register_retriever(name: str) -> Callable[[_F], _F]:
        """See `register`."""
        return register("retriever", name)

    @staticmethod
    def register_tool(name: str) -> Callable[[_F], _F]:
        """See `register`."""
        return register("tool", name)

    @staticmethod
    def get_llm(name: str, *args: object, **params: object) -> LLMProvider:
        """See `create`."""
        return create("llm", name, *args, **params)

    @staticmethod
    def get_memory(name: str, *args: object, **params: object) -> Memory:
        """See `create`."""
        return create("memory", name, *args, **params)

    @staticmethod
    def get_retriever(name: str, *args: object, **params: object) -> Retriever:
        """See `create`."""
        return create("retriever", name, *args, **params)

    @staticmethod
    def get_tool(name: str, *args: object, **params: object) -> Tool:
        """See `create`."""
        return create("tool", name, *args, **params)
