"""Library: all knowledge bases of a home folder, opened on demand."""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any, get_args

import anyio
from anyio import to_thread

from loom_core.embedding.query_cache import QueryCache
from loom_core.errors import EmbeddingError, LoomError, NotFoundError, StoreBusyError, StoreError
from loom_core.knowledge.sources.catalogue import Catalogue
from loom_core.knowledge.store.opening import delete_store, has_store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from anyio.abc import TaskGroup

    from loom_core.embedding.interface import EmbeddingProvider
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.sources.catalogue import CatalogueEntry
    from loom_core.knowledge.sources.sharded import ShardedKnowledgeBase
    from loom_core.knowledge.store.place import StorePlace
    from loom_core.knowledge.store.shard import Shard
    from loom_core.llm.interface import LLMProvider

__all__ = ["Library"]

_log = logging.getLogger(__name__)


class Library:
    """Opens knowledge bases by name, each once, and works for them in the background.

    Args:
        home: Loom's home.
        database: URL of a PostgreSQL database that has the knowledge bases; the home then has the folders of
            their indexes.
        embedder: which embedder new knowledge bases use; see `create_embedder`.
        vectors: where new knowledge bases search their vectors; see `RAGConfig.vectors`.
        lexical: where new knowledge bases search words; see `RAGConfig.lexical`.
        graph: where new knowledge bases keep their graph; see `RAGConfig.graph`.
        llm: which language model finds entities and relations next to the rules; see `create_provider`. Empty
            for rules alone.
        only: names that may be opened; empty for all.
        may_use: called, in the requesting thread or task, to check whether a knowledge base may be used now;
            a forbidden one is treated as absent. By default all are allowed.
        program: name of this process for the others that share the home.
        start_timeout: seconds for which a call waits for an embedder that is being loaded; loading continues
            in the background, and the next call waits again.
    """

    def __init__(
        self,
        home: Path,
        *,
        database: str = "",
        embedder: str = "auto",
        vectors: str = "",
        lexical: str = "",
        graph: str = "",
        llm: str | Mapping[str, Any] = "",
        only: Sequence[str] = (),
        may_use: Callable[[str], bool] = lambda _name: True,
        program: str = "python",
        start_timeout: float = 40.0,
    ) -> None:
        self.catalogue = Catalogue(home, database=database)
        self._choice = embedder
        self._vectors = vectors
        self._lexical = lexical
        self._graph = graph
        self._llm_choice = llm
        self._llm: LLMProvider | None = None
        self._embedders: dict[str, EmbeddingProvider] = {}
        self._only = frozenset(only)
        self._may_use = may_use
        self._program = program
        self._start_timeout = start_timeout
        self._open: dict[str, GraphRAGKnowledgeBase] = {}
        self._sharded: dict[str, ShardedKnowledgeBase] = {}
        self._tasks: TaskGroup | None = None
        self._work: dict[str, _BackgroundWork] = {}
        self._turn = anyio.Lock()
        self._starts: dict[StorePlace, _EmbedderStart] = {}

    def list(self) -> list[CatalogueEntry]:
        """Return the usable knowledge bases that may be opened. Blocks for milliseconds."""
        return [entry for entry in self._list_allowed() if not entry.problem]

    def unusable(self) -> list[CatalogueEntry]:
        """Return those that may be opened but are unusable, each with its `problem`. Blocks briefly."""
        return [entry for entry in self._list_allowed() if entry.problem]

    async def get(
        self,
        name: str,
        *,
        create: bool = False,
        description: str = "",
        search_hints: Sequence[str] = (),
        embedder: str = "",
    ) -> GraphRAGKnowledgeBase:
        """Open a knowledge base, or return the open one.

        Args:
            name: its name.
            create: whether to create it if it does not exist.
            description: stored, if given.
            search_hints: stored, if given.
            embedder: id of the embedder for a new one, unless one was chosen for all.

        Raises:
            NotFoundError: it does not exist, or may not be opened.
            InvalidInputError: no knowledge base can have this name, or it is split.
            EmbeddingError: the embedding server, whose dimension is unknown, does not answer, or not yet: it
                may be loading its model, which continues.
            ConfigError: the language model's configuration is wrong.
        """
        knowledge_base = self._open.get(name) if self._is_allowed(name) else None
        if knowledge_base is None:
            place = self.catalogue.place(name)
            exists = await to_thread.run_sync(has_store, place)
            if not self._is_allowed(name) or not (create or exists):
                raise await to_thread.run_sync(self._unknown, name)
            knowledge_base = await self._open_base(name, place, embedder=embedder)
        if description:
            knowledge_base.store.set("description", description)
        if search_hints:
            knowledge_base.store.set("search_hints", "\n".join(search_hints))
        return knowledge_base

    async def open(self, name: str) -> GraphRAGKnowledgeBase | ShardedKnowledgeBase:
        """Open a knowledge base, split or not; arguments and errors as for `get`."""
        return await self._open_sharded(name) or await self.get(name)

    async def parts(self, name: str) -> list[GraphRAGKnowledgeBase]:
        """Open a knowledge base and return it, or all its shards; errors as for `get`."""
        sharded = await self._open_sharded(name)
        return [await self.get(name)] if sharded is None else await sharded.parts()

    async def part(self, name: str, id_or_uri: str) -> GraphRAGKnowledgeBase:
        """Open a knowledge base and return it, or the shard of a document; errors as for `get`."""
        sharded = await self._open_sharded(name)
        return await self.get(name) if sharded is None else await sharded.part(id_or_uri)

    async def open_shard(
        self, shard: Shard, place: StorePlace, *, create: bool = False
    ) -> GraphRAGKnowledgeBase:
        """Open a shard of a knowledge base that this library has, and create it if asked to.

        Raises:
            StoreError: it does not exist.
            LoomError: as for `get`, and if it cannot be opened.
        """
        knowledge_base = self._open.get(shard.name)
        if knowledge_base is None:
            if not create and not await to_thread.run_sync(has_store, place):
                raise StoreError(
                    f"The shard {shard.name} is missing: there is no knowledge base in {place}.",
                    advice="Restore it from a backup.",
                )
            knowledge_base = await self._open_base(shard.name, place, like=self.catalogue.place(shard.of))
        return knowledge_base

    async def delete(self, name: str) -> None:
        """Delete a knowledge base with all its files, and its shards.

        Raises:
            NotFoundError: there is none.
            StoreBusyError: another process works on it.
        """
        shards = await to_thread.run_sync(self.catalogue.shards, name) if self._is_allowed(name) else ()
        for shard, place in shards:
            if await to_thread.run_sync(has_store, place):
                await self._delete(await self.open_shard(shard, place), place)
        if shards:
            self._sharded.pop(name, None)
            await to_thread.run_sync(delete_store, self.catalogue.place(name))
        else:
            await self._delete(await self.get(name), self.catalogue.place(name))

    async def _delete(self, knowledge_base: GraphRAGKnowledgeBase, place: StorePlace) -> None:
        name = knowledge_base.name
        if not knowledge_base.worker.acquire():
            holder = knowledge_base.worker.find_leader() or knowledge_base.holder() or "another process"
            raise StoreBusyError(
                f"The knowledge base {name!r} is in use by {holder}.",
                advice="Close the programs that use it and try again.",
            )
        del self._open[name]
        if (work := self._work.pop(name, None)) is not None:
            await work.end()
        await to_thread.run_sync(knowledge_base.leave_servers)
        await to_thread.run_sync(knowledge_base.close)
        await to_thread.run_sync(delete_store, place)

    def work_in(self, tasks: TaskGroup) -> None:
        """Work for every knowledge base opened from now on, in a task group that the caller cancels."""
        self._tasks = tasks

    def language_model(self) -> LLMProvider | None:
        """Return the language model, one for all knowledge bases; None without.

        Raises:
            ConfigError: its configuration is wrong.
        """
        if self._llm is None and self._llm_choice:
            from loom_core.llm.factory import create_provider

            self._llm = create_provider(self._llm_choice)
        return self._llm

    async def close_connections(self) -> None:
        """Close the connections to the language model; the next request opens new ones."""
        if self._llm is not None:
            await self._llm.aclose()

    def close(self) -> None:
        """Close every knowledge base."""
        self._work.clear()
        self._sharded.clear()
        while self._open:
            self._open.popitem()[1].close()
        self.catalogue.close()

    def _list_allowed(self) -> list[CatalogueEntry]:
        return [entry for entry in self.catalogue.list() if self._is_allowed(entry.name)]

    def _is_allowed(self, name: str) -> bool:
        return (not self._only or name in self._only) and self._may_use(name)

    async def _open_sharded(self, name: str) -> ShardedKnowledgeBase | None:
        """Return a knowledge base that is split; None if it is not, or may not be opened."""
        if name in self._open or not self._is_allowed(name):
            return None
        if name not in self._sharded:
            entry = await to_thread.run_sync(self.catalogue.find, self.catalogue.place(name))
            if entry is None or not entry.shards:
                return None
            from loom_core.knowledge.sources.sharded import ShardedKnowledgeBase

            shards = self.catalogue.shards_of(entry)
            opened = {shard.name: partial(self.open_shard, shard, place) for shard, place in shards}
            self._sharded[name] = ShardedKnowledgeBase(entry.source, opened)
        return self._sharded[name]

    async def _open_base(
        self, name: str, place: StorePlace, *, embedder: str = "", like: StorePlace | None = None
    ) -> GraphRAGKnowledgeBase:
        """Open a knowledge base that is not open yet, and begin to work for it; errors as for `get`.

        Args:
            name: its name.
            place: where it is.
            embedder: see `get`.
            like: place of another one whose embedder it takes if it has none.
        """
        provider = await self._start_embedder(
            place, embedder, like
        )  # outside the lock, so that others can be opened meanwhile
        async with self._turn:
            knowledge_base = self._open.get(name)
            if knowledge_base is None:
                # One model, loaded or connected, serves all knowledge bases.
                provider = self._embedders.setdefault(provider.id, QueryCache(provider))
                knowledge_base = await to_thread.run_sync(self._open_with_embedder, name, place, provider)
                self._open[name] = knowledge_base
                if self._tasks is not None:
                    self._work[name] = work = _BackgroundWork(knowledge_base)
                    self._tasks.start_soon(work.run)
        return knowledge_base

    def _open_with_embedder(
        self, name: str, place: StorePlace, embedder: EmbeddingProvider
    ) -> GraphRAGKnowledgeBase:
        from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
        from loom_core.knowledge.rag.owner.protocol import PeerSettings
        from loom_core.knowledge.retrieval.config import RAGConfig

        new = not has_store(place)
        knowledge_base = GraphRAGKnowledgeBase.from_config(
            embedding_provider=embedder,
            llm_provider=self.language_model(),
            config=RAGConfig(vectors=self._vectors, lexical=self._lexical, graph=self._graph)
            if new
            else None,
            name=name,
            path=place.folder,
            database=place.database,
            peers=PeerSettings(program=self._program),
        )
        if not knowledge_base.store.get("name"):
            knowledge_base.store.set("name", name)
        return knowledge_base

    async def _start_embedder(
        self, place: StorePlace, wanted: str, like: StorePlace | None
    ) -> EmbeddingProvider:
        """Start the embedder of a knowledge base, and wait until it is ready.

        In a server, a caller waits for a while only: the loading continues for the next caller.
        """
        start = self._starts.get(place)
        if start is None:
            provider = await to_thread.run_sync(self._embedder, place, wanted, like)
            if self._tasks is None:
                await provider.prepare()
                return provider
            start = self._starts[place] = _EmbedderStart(provider, self._choice)
            self._tasks.start_soon(start.run)
        try:
            await start.wait(self._start_timeout)
        finally:
            if start.over.is_set():
                self._starts.pop(place, None)
        return start.provider

    def _embedder(self, place: StorePlace, wanted: str, like: StorePlace | None) -> EmbeddingProvider:
        """Return the embedder of a knowledge base: that of its vectors, unless another was chosen."""
        from loom_core.embedding.registry import EmbedderChoice, create_embedder, is_remote

        entry = self.catalogue.find(place)
        if like is not None and (entry is None or not entry.embedder):
            entry = self.catalogue.find(like)
        known = (entry.embedder if entry is not None else "") or wanted
        if self._choice == "auto" and entry is not None and is_remote(entry.embedding_config):
            return create_embedder(entry.embedding_config)
        embedder = create_embedder(self._choice)
        if self._choice == "auto" and known and embedder.id != known:
            candidates = map(create_embedder, get_args(EmbedderChoice))
            embedder = next((other for other in candidates if other.id == known), embedder)
        return embedder

    def _unknown(self, name: str) -> NotFoundError:
        names = [entry.name for entry in self.list()]
        return NotFoundError(
            f"There is no knowledge base {name!r}.",
            advice=f"There are: {', '.join(names)}." if names else "There is none yet: add something first.",
        )


class _EmbedderStart:
    """Start of an embedder in the background, which continues if the callers stop waiting.

    Attributes:
        provider: the embedder.
        over: set once it is ready or has failed.
    """

    def __init__(self, provider: EmbeddingProvider, choice: str) -> None:
        self.provider = provider
        self.over = anyio.Event()
        self._choice = choice
        self._failure: LoomError | None = None

    async def run(self) -> None:
        try:
            await self.provider.prepare()
        except LoomError as error:
            self._failure = error
        finally:
            self.over.set()

    async def wait(self, seconds: float) -> None:
        with anyio.move_on_after(seconds):
            await self.over.wait()
        if self._failure is not None:
            raise self._failure
        if not self.over.is_set():
            from loom_core.embedding.remote_models.config import config_of_text

            config = config_of_text(self._choice) or {}
            name = f"{config['provider']}:{config.get('model', '')}" if config else self._choice
            raise EmbeddingError(
                f"The embedder {name.rstrip(':')} is not ready yet: its server may be loading the model.",
                advice="Loading continues: try again in a moment.",
                failure="timeout",
            )


class _BackgroundWork:
    """Background work for one knowledge base, which can be ended separately."""

    def __init__(self, knowledge_base: GraphRAGKnowledgeBase) -> None:
        self._knowledge_base = knowledge_base
        self._scope = anyio.CancelScope()
        self._ended = anyio.Event()

    async def run(self) -> None:
        try:
            with self._scope:
                await self._knowledge_base.work()
        except Exception:  # noqa: BLE001 - the outermost handler of a background task
            _log.exception("working for the knowledge base %r failed", self._knowledge_base.name)
        finally:
            self._ended.set()

    async def end(self) -> None:
        self._scope.cancel()
        await self._ended.wait()
