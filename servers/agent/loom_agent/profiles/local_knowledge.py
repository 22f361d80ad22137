"""The knowledge bases of this machine, as sources for agents."""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Literal

import anyio
from anyio import to_thread

from loom_agent.profiles.profile_config import EVERYTHING
from loom_core.errors import ConfigError
from loom_core.installation import how_to_install
from loom_core.knowledge.sources.catalogue import Catalogue

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from anyio.abc import TaskGroup

    from loom_core.knowledge.sources.catalogue import CatalogueEntry
    from loom_core.knowledge.sources.federation.federation import Federation
    from loom_core.knowledge.sources.library import Library

__all__ = ["LocalKnowledge", "can_search", "how_to_search", "require_search"]

_NEEDED = ("chromadb", "numpy", "onnxruntime", "tantivy")  # of the extra `kb`; not imported to find out
_PROGRAM = "loom-agent-server"


def can_search() -> bool:
    """Whether the packages for searching knowledge bases are installed."""
    return all(find_spec(name) is not None for name in _NEEDED)


def how_to_search() -> str:
    """Return how to install the packages for searching, in one sentence."""
    return how_to_install(f"{_PROGRAM}[kb]")


def require_search() -> None:
    """Check that these packages are installed, for notes about users, which are in knowledge bases.

    Raises:
        ConfigError: they are not.
    """
    if not can_search():
        raise ConfigError(
            "Notes about users cannot be read: packages are not installed.", advice=how_to_search()
        )


class LocalKnowledge:
    """The knowledge bases of a home, opened on the first search.

    Args:
        home: Loom's folder.
        database: URL of a PostgreSQL database that has them instead; empty for files.
    """

    def __init__(self, home: Path, *, database: str = "") -> None:
        self._home = home
        self._database = database
        self._catalogue = Catalogue(home, database=database)
        self._library: Library | None = None
        self._tasks: TaskGroup | None = None
        self._turn = anyio.Lock()
        self._notes: dict[str, None] = {}

    @property
    def notes(self) -> list[str]:
        """Notes about knowledge bases that agents cannot search, and why."""
        return list(self._notes)

    def work_in(self, tasks: TaskGroup) -> None:
        """Use a task group, which the caller ends, to load models."""
        self._tasks = tasks

    async def sources(self, names: Literal["all"] | Sequence[str]) -> Federation | None:
        """Return a federation of these knowledge bases; None if there are none.

        Args:
            names: their names; `all` for all of the home.

        Raises:
            ConfigError: one does not exist or is not usable, or the packages for searching are missing.
        """
        entries = {entry.name: entry for entry in await to_thread.run_sync(self._catalogue.list)}
        if names != EVERYTHING:
            _check(entries, names)
        chosen = [
            entry
            for entry in entries.values()
            if not entry.problem and (names == EVERYTHING or entry.name in names)
        ]
        if not chosen:
            return None
        if not can_search():
            what = "The knowledge bases of this machine cannot be searched: packages are not installed."
            if names != EVERYTHING:
                raise ConfigError(what, advice=how_to_search())
            self._notes[f"{what} {how_to_search()}"] = None
            return None
        return await self._federation(chosen)

    def close(self) -> None:
        """Close the open knowledge bases. Blocks."""
        self._catalogue.close()
        if self._library is not None:
            self._library.close()

    async def _federation(self, entries: Sequence[CatalogueEntry]) -> Federation:
        async with self._turn:  # import once: it takes a second
            await to_thread.run_sync(import_module, "loom_core.knowledge.rag.knowledge_base")
            from loom_core.knowledge.sources.federation.federation import Federation
            from loom_core.knowledge.sources.library import Library
            from loom_core.knowledge.sources.local import LocalKnowledgeBase

            if self._library is None:
                self._library = Library(self._home, database=self._database, program=_PROGRAM)
                if self._tasks is not None:
                    self._library.work_in(self._tasks)
            library = self._library
            return Federation(
                [LocalKnowledgeBase(library, entry.source, base=entry.name) for entry in entries]
            )


def _check(entries: dict[str, CatalogueEntry], names: Sequence[str]) -> None:
    for name in names:
        if name not in entries:
            known = f"There are: {', '.join(entries)}." if entries else "There is none: make it with loom-kb."
            raise ConfigError(f"There is no knowledge base {name!r}, which the profile names.", advice=known)
        if problem := entries[name].problem:
            raise ConfigError(
                f"The knowledge base {name!r} cannot be used: {problem}.",
                advice=f"loom-kb check --kb {name} says what can be done.",
            )
