"""Base class of the indexes in a database of the team's own, which may be away at any time."""

from __future__ import annotations

import json
import logging
import threading
import time
from abc import abstractmethod
from secrets import token_hex
from typing import TYPE_CHECKING, Any, ClassVar, Generic, Protocol, Self, TypeVar

from pydantic import SecretStr

from loom_core.errors import ConfigError, LoomError, StoreUnavailableError
from loom_core.knowledge.indexes.derived import SteppedIndex
from loom_core.knowledge.indexes.engines.servers import find_secret

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loom_core.knowledge.indexes.engines.servers import StoreKind
    from loom_core.knowledge.store import KnowledgeStore
    from loom_core.knowledge.store.changes import IndexName
    from loom_core.knowledge.store.store import MetaName

    _Found = TypeVar("_Found")

__all__ = ["RemoteIndex", "ServerChoice"]

_log = logging.getLogger(__name__)

_UNREAD = SecretStr("")  # the secret, before it is read: the keyring takes a second
_AWAY_SECONDS = 10.0  # until a server that could not be asked is asked again


class _Engine(Protocol):
    """The methods that the ports of all engines have in common."""

    def create(self) -> None: ...

    def drop(self) -> None: ...

    def close(self) -> None: ...


_EngineT = TypeVar("_EngineT", bound=_Engine)


class RemoteIndex(SteppedIndex, Generic[_EngineT]):
    """A collection in a database; the holder of the lock writes, any process searches.

    A server that cannot be asked is no damage: `problem` says why, and what it has missed is written once it
    answers. A collection that is gone or differs from the store is built again, under a new name.

    A copy of the folder at another path gets a collection of its own.

    Args:
        store: the store that it is derived from.
        folder: the knowledge base's folder.
        setting: `engine+url`, without a password.
    """

    kind: ClassVar[StoreKind]
    noted_as: ClassVar[MetaName]
    """Entry of the store with name, folder and setting of the collection that was written last."""

    def __init__(self, store: KnowledgeStore, folder: Path, setting: str) -> None:
        super().__init__(store, folder)
        self._home = _home_of(store, folder)
        self.setting = setting
        self.problem = ""
        """Why the server could not be asked the last time, or empty."""
        self._asked_again = 0.0  # by `time.monotonic`; until then it is not asked
        self._secret: SecretStr | None = _UNREAD
        self._opening = threading.Lock()
        self._opened: tuple[str, _EngineT] | None = None

    @classmethod
    def known(cls, store: KnowledgeStore, folder: Path) -> Self | None:
        """Return the index that was written last, if it is this folder's; the setting may be another now."""
        noted = cls._noted(store)
        return (
            cls(store, folder, noted["setting"]) if noted.get("folder") == _home_of(store, folder) else None
        )

    @property
    def is_built(self) -> bool:
        """Whether there is a collection that can be searched. Blocks."""
        return self._store.changes.state(self.name).built and bool(self._collection_id())

    def sync(self, *, limit: int = SteppedIndex.step_size) -> bool:
        """Apply up to `limit` changes of the store, or continue a build; see `DerivedIndex.sync`.

        Where the server cannot be asked, nothing is done, and `problem` says why.
        """
        if time.monotonic() < self._asked_again:
            return False
        try:
            if not self._collection_id():
                self._name_collection()
            worked = super().sync(limit=limit)
        except (StoreUnavailableError, ConfigError) as error:
            self._note_absence(error)
            return False
        self.problem = ""
        return worked

    def progress(self) -> tuple[int, int]:
        """Return the last chunk that the collection holds while it is built, and the last one there is."""
        last, growing = self._store.documents.last_chunk(), self._growing
        if self._store.changes.state(self.name).built:
            return last, last
        return (growing.after if growing is not None else 0), last

    def ask(self, ask: Callable[[_EngineT], _Found]) -> _Found:
        """Ask the current collection something.

        Raises:
            StoreUnavailableError: it cannot be asked, or could not a moment ago.
            IndexDamagedError: there is no such collection, or it is broken.
        """
        if time.monotonic() < self._asked_again:
            raise StoreUnavailableError(self.problem, advice="Ask again in a moment.")
        try:
            return ask(self._index(self._store.changes.state(self.name).generation))
        except (StoreUnavailableError, ConfigError) as error:
            self._note_absence(error)
            raise StoreUnavailableError(error.message, advice=error.advice) from error

    def close(self) -> None:
        """Close connections; the next use opens them again."""
        super().close()
        with self._opening:
            opened, self._opened = self._opened, None
        if opened is not None:
            opened[1].close()

    @abstractmethod
    def _open(self, collection: str, secret: SecretStr | None) -> _EngineT:
        """Open a collection of the engine, which need not exist; nothing is connected yet."""

    def _begin(self, generation: int) -> None:
        self._index(generation).create()

    def _open_if_wanted(self, generation: int) -> None:
        self._index(generation)

    def _is_open(self) -> bool:
        return self._opened is not None

    def _close(self) -> None:
        self._growing = None

    def _remove(self, generation: int) -> None:
        if generation < 1 or not self._collection_id() or time.monotonic() < self._asked_again:
            return
        index = self._open(self._collection(generation), self._find_secret())
        try:
            index.drop()
        except LoomError as error:
            self._note_absence(error)
            _log.warning("The collection %s was left there.", self._collection(generation))
        finally:
            index.close()

    def _remove_stale_generations(self) -> None:
        current = self._store.changes.state(self.name).generation
        self._remove(current - 1)
        self._swept = True

    def _index(self, generation: int) -> _EngineT:
        """Return the open collection of a generation; it connects at first use."""
        collection = self._collection(generation)
        with self._opening:
            if self._opened is None or self._opened[0] != collection:
                if self._opened is not None:
                    self._opened[1].close()
                self._opened = collection, self._open(collection, self._find_secret())
            return self._opened[1]

    def _find_secret(self) -> SecretStr | None:
        if self._secret is _UNREAD:
            self._secret = find_secret(self.kind)
        return self._secret

    def _collection(self, generation: int) -> str:
        return f"loom_{self._collection_id()}_{generation}"

    def _collection_id(self) -> str:
        """Return the name that this folder's collections share there; empty before there is one."""
        noted = self._noted(self._store)
        return (
            noted["id"] if (noted.get("folder"), noted.get("setting")) == (self._home, self.setting) else ""
        )

    def _name_collection(self) -> None:
        """Choose a new name, which no other knowledge base has; the collection is built from scratch."""
        left = self.known(self._store, self._folder) if self._folder is not None else None
        if left is not None:
            left.discard()
        fresh = {"id": token_hex(8), "folder": self._home, "setting": self.setting}
        with self._store.database.write():
            self._store.set(self.noted_as, json.dumps(fresh))
            self._store.changes.forget(self.name)

    @classmethod
    def _noted(cls, store: KnowledgeStore) -> dict[str, str]:
        return json.loads(store.get(cls.noted_as) or "{}")

    def _note_absence(self, error: LoomError) -> None:
        if not self.problem:
            _log.warning("%s", error)
        self.problem = str(error)
        self._compared = 0  # it may come back with less
        self._asked_again = time.monotonic() + _AWAY_SECONDS


def _home_of(store: KnowledgeStore, folder: Path) -> str:
    """Return that which a collection belongs to: a folder, or a store that many folders follow."""
    return str(folder.resolve()) if store.sharing is None else store.sharing.node.store_id


_IndexT = TypeVar("_IndexT", bound=RemoteIndex[Any])


class ServerChoice(Generic[_IndexT]):
    """The index in a server that a knowledge base's setting names, if it names one.

    The setting is in the store, so that all processes have the same; it may change at any time.

    Args:
        store: the store.
        folder: the knowledge base's folder; None for one in memory, which has no servers.
        kind: what may be in a server.
        name: name of its indexes.
        load: imports their class, which most knowledge bases do not need.
        options: further arguments of its constructor.
    """

    def __init__(
        self,
        store: KnowledgeStore,
        folder: Path | None,
        kind: StoreKind,
        *,
        name: IndexName,
        load: Callable[[], type[_IndexT]],
        **options: Any,  # noqa: ANN401 - they are those of the class
    ) -> None:
        self._store = store
        self._folder = folder
        self._kind = kind
        self._name: IndexName = name
        self._load = load
        self._options = options
        self._choosing = threading.Lock()
        self._index: _IndexT | None = None

    @property
    def setting(self) -> str:
        """The setting, on this machine or as the address of a server. Blocks."""
        return self._kind.choice(self._store)

    @property
    def problem(self) -> str:
        """Why the server cannot be asked; or empty."""
        return "" if self._index is None else self._index.problem

    def find(self) -> _IndexT | None:
        """Return the index in the server; None where the setting names none. Blocks."""
        setting = self.setting
        if self._folder is None or setting in self._kind.local:
            return None
        with self._choosing:
            if self._index is None or self._index.setting != setting:
                self.close()
                self._index = self._load()(self._store, self._folder, setting, **self._options)
            return self._index

    def sync(self) -> bool:
        """Bring the index in the server a step closer to the store, if it is this process that writes there.

        Returns:
            Whether there may be more to do.
        """
        index = self.find()
        return index is not None and self._store.is_led and index.sync()

    def leave(self) -> None:
        """Delete the index in a server, if there is one and it can be reached. Blocks."""
        if (
            self._folder is None
            or not self._store.is_led
            or not self._store.changes.state(self._name).generation
        ):
            return
        left = self._load().known(self._store, self._folder)
        if left is None:
            self._store.changes.forget(self._name)
        else:
            left.discard()

    def progress(self) -> tuple[int, int]:
        """Return how far the index in the server is built, and its end; 0 for both without one. Blocks."""
        index = self.find()
        return (0, 0) if index is None else index.progress()

    def lag(self) -> int:
        """Return how many changes the server has still to get; 0 without one. Blocks."""
        index = self.find()
        return 0 if index is None else index.lag()

    def close(self) -> None:
        """Close connections; the next use opens them again."""
        if self._index is not None:
            self._index.close()
