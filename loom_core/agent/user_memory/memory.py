"""`UserMemory`: what an agent remembers about each user across sessions."""

from __future__ import annotations

import logging
import secrets
import shutil
import time
from contextlib import asynccontextmanager, closing
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Literal, get_args
from weakref import WeakValueDictionary

import anyio
from anyio import to_thread

from loom_core.agent.user_memory.extraction import extract_notes, find_notes
from loom_core.agent.user_memory.note import NewNote, Note, NoteSource, clean_text, is_storable, same_text
from loom_core.errors import (
    ConfigError,
    InvalidInputError,
    LoomError,
    NotFoundError,
    StoreBusyError,
    StoreError,
)
from loom_core.paths import loom_home
from loom_core.runs.run import is_for_call

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Container, Sequence

    from loom_core.embedding.interface import EmbeddingProvider
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.llm.interface import LLMProvider, Usage
    from loom_core.runs.run import Run

__all__ = ["Extraction", "UserMemory"]

Extraction = Literal["rules", "model", "off"]
"""How notes are found in the user's words after a run: by rules, which cost nothing; by one request to a
model; or not at all."""

_log = logging.getLogger(__name__)

_MOST_NOTES = 1000  # of a user
_LONGEST_USER = 1000  # characters of an id
_MODEL_SECONDS = 30.0
_ADDRESS = "memory:"
_turns: WeakValueDictionary[Path, anyio.Lock] = WeakValueDictionary()  # of stores, for all memories


class UserMemory:
    """Memory across sessions: short notes about each user, in a knowledge base of that user's own.

        memory = UserMemory(default_user="me")
        agent = Agent("deepseek", user_memory=memory)

    The user of a run is its `caller`. Each user has a separate store: no search can find another user's
    notes. Stores are opened for an operation and closed after it, so that there may be any number; several
    processes may use the same folder.

    Args:
        folder: where the stores are; by default `agent/memory` in Loom's home.
        embedder: makes the vectors; see `KnowledgeBase`.
        default_user: the user of runs without a caller, in a program with a single user. Empty: such runs
            have no memory, as it would be shared by all users that the program does not tell apart.
        extraction: see `Extraction`.
        llm: the model for `extraction="model"`; by default that of the agent.

    Raises:
        ConfigError: there is no such extraction.
    """

    def __init__(
        self,
        folder: Path | str | None = None,
        *,
        embedder: EmbeddingProvider | str = "auto",
        default_user: str = "",
        extraction: Extraction = "rules",
        llm: LLMProvider | None = None,
    ) -> None:
        if extraction not in get_args(Extraction):
            raise ConfigError(
                f"`extraction` cannot be {extraction!r}.", advice=f"Use {', '.join(get_args(Extraction))}."
            )
        self._folder = loom_home() / "agent" / "memory" if folder is None else Path(folder).expanduser()
        self._embedder = embedder
        self._default_user = default_user
        self._extraction = extraction
        self._llm = llm

    def user_of(self, run: Run) -> str:
        """Return the user of a run; empty if unknown."""
        return run.request.caller or self._default_user

    async def users(self) -> list[str]:
        """List the users with notes."""
        return await to_thread.run_sync(self._users)

    async def notes(self, user: str) -> list[Note]:
        """Return all notes about a user, latest first."""
        async with self._open(user) as store:
            return [] if store is None else await to_thread.run_sync(_read_notes, store)

    async def search(self, user: str, query: str, *, limit: int = 8) -> list[Note]:
        """Return the notes about a user that are nearest to a query, by words and meaning, best first.

        If there are no more than `limit`, it is all of them, latest first.
        """
        if len(notes := await self.notes(user)) <= limit:
            return notes
        async with self._open(user, embeds=True) as store:
            if store is None:
                return []
            found = await store.retriever("hybrid").retrieve(query, top_k=limit)
        by_id = {each.id: each for each in notes}
        ids = (str(each["metadata"]["uri"]).removeprefix(_ADDRESS) for each in found)
        return [by_id[id_] for id_ in ids if id_ in by_id]

    async def add(
        self, user: str, notes: Sequence[NewNote], *, source: NoteSource = "program", run: Run | None = None
    ) -> list[Note]:
        """Store notes about a user.

        A note that is there already is not stored twice. One that corrects another (`NewNote.replaces`,
        `NewNote.slot`) takes its place and its id; the earlier text stays in `Note.earlier` until the note is
        deleted.

        Args:
            user: the user.
            notes: the notes.
            source: their origin.
            run: the run they come from.

        Returns:
            The stored notes, in order.

        Raises:
            InvalidInputError: a text is empty, too long, or a secret; or the user has too many notes. Nothing
                is stored.
            NotFoundError: there is no note to replace.
        """
        cleaned = [replace(each, text=clean_text(each.text)) for each in notes]
        async with self._open(user, creates=True, embeds=True) as store:
            assert store is not None
            before = {each.id: each for each in await to_thread.run_sync(_read_notes, store)}
            known = dict(before)
            stored = [_merge(known, each, source=source, run=run) for each in cleaned]
            changed = [each for each in known.values() if before.get(each.id) is not each]
            if len(known) > max(_MOST_NOTES, len(before)):
                raise InvalidInputError(
                    f"There are {len(before):,} notes about the user, and no more can be stored.",
                    advice="Forget some of them first.",
                )
            if changed:
                await store.add_texts(
                    [each.text for each in changed],
                    uris=[_ADDRESS + each.id for each in changed],
                    metadatas=[each.metadata() for each in changed],
                    mime="text/plain",
                )
            if gone := before.keys() - known.keys():
                await store.erase([_ADDRESS + each for each in gone])
        return stored

    async def forget(self, user: str, ids: Sequence[str]) -> list[Note]:
        """Delete notes about a user for good, with their earlier texts; return them.

        Nothing of them is left in the files of the store. Unknown ids are ignored.
        """
        async with self._open(user) as store:
            if store is None:
                return []
            notes = [each for each in await to_thread.run_sync(_read_notes, store) if each.id in set(ids)]
            if notes:
                await store.erase([_ADDRESS + each.id for each in notes])
        return notes

    async def clear(self, user: str) -> int:
        """Delete the store of a user with all notes; return how many there were.

        Raises:
            StoreBusyError: another process is using it.
        """
        async with self._open(user) as store:
            if store is None:
                return 0
            if not await to_thread.run_sync(store.worker.acquire):
                raise StoreBusyError(
                    "Another process is using the notes of this user.", advice="Try again in a moment."
                )
            number = store.documents.counts()[0]
            store.close()
            await to_thread.run_sync(shutil.rmtree, self._place(user))
            return number

    async def learn(self, run: Run, said: Sequence[str], llm: LLMProvider) -> Usage | None:
        """Extract notes from the user's own words at the end of a run. Doing it again adds nothing.

        Only the words of the user are read: neither answers nor the results of tools, which others may have
        written. A problem is logged, and the run ends without notes.

        Args:
            run: the run; that of an agent which another one called is left out.
            said: the messages of the user, oldest first.
            llm: the agent's model.

        Returns:
            Usage of the model; None if there was no request.
        """
        user = self.user_of(run)
        if not user or self._extraction == "off" or is_for_call(run):
            return None
        source: NoteSource = "rules" if self._extraction == "rules" else "model"
        # What the agent noted itself, rules would note again in other words; a model is shown it.
        done: NoteSource = "agent" if source == "rules" else "model"
        usage: Usage | None = None
        try:
            known = await self.notes(user)
            if any(each.run_id == run.id and each.source == done for each in known):
                return None
            if source == "rules":
                found = [note for text in said for note in find_notes(text)]
            else:
                with anyio.fail_after(_MODEL_SECONDS):
                    found, usage = await extract_notes(self._llm or llm, said, known)
            if storable := [each for each in found if is_storable(each.text)]:
                await self.add(user, storable, source=source, run=run)
        except (LoomError, TimeoutError) as error:
            _log.warning("no notes were extracted from run %s: %s", run.id, error)
        return usage

    def _place(self, user: str) -> Path:
        """Return the folder of a user's store: the one place that decides whose notes are read."""
        if not 0 < len(user) <= _LONGEST_USER:
            raise InvalidInputError(
                f"The id of a user cannot have {len(user)} characters.",
                advice="Give the caller of the run, such as the id of a token.",
            )
        return self._folder / sha256(user.encode("utf-8", "surrogatepass")).hexdigest()[:32]

    @asynccontextmanager
    async def _open(
        self, user: str, *, creates: bool = False, embeds: bool = False
    ) -> AsyncGenerator[GraphRAGKnowledgeBase | None]:
        """Open the store of a user, one operation at a time; yield None if there is none.

        Args:
            user: the user.
            creates: whether to create it.
            embeds: whether vectors are needed.
        """
        folder = self._place(user)
        async with _turns.setdefault(folder, anyio.Lock()):
            if not creates and not (folder / "record.db").exists():
                yield None
                return
            embedder = self._create_embedder() if embeds else None
            store = await to_thread.run_sync(self._open_store, folder, user, embedder)
            try:
                if embedder is not None and store.embedder_id != embedder.id:
                    await store.change_embedder(embedder)
                await _finish_work(store, embeds=embeds)
                yield store
            finally:
                store.close()

    def _open_store(
        self, folder: Path, user: str, embedder: EmbeddingProvider | None
    ) -> GraphRAGKnowledgeBase:
        from loom_core.knowledge.ingest.extraction.config import ExtractionConfig
        from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
        from loom_core.knowledge.retrieval.config import RAGConfig

        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StoreError(
                f"The folder {self._folder} cannot be created: {error.strerror or error}.",
                advice="Make it writable, or choose another one for the notes about users.",
            ) from error
        config = RAGConfig(extraction=ExtractionConfig(enabled=False))
        try:
            store = GraphRAGKnowledgeBase("notes", path=folder, embedder=embedder, config=config)
        except ConfigError:  # another embedder made the vectors, before an upgrade
            store = GraphRAGKnowledgeBase("notes", path=folder, embedder="stored", config=config)
        if not store.description:
            store.store.set("description", user)
        return store

    def _create_embedder(self) -> EmbeddingProvider:
        """Return the embedder, one for all users: it loads its model once."""
        if isinstance(self._embedder, str):
            from loom_core.embedding.registry import create_embedder

            self._embedder = create_embedder(self._embedder)
        return self._embedder

    def _users(self) -> list[str]:
        from loom_core.knowledge.store import KnowledgeStore

        found: list[str] = []
        for path in self._folder.glob("*/record.db"):
            with closing(KnowledgeStore(path)) as store:
                if store.documents.counts()[0]:
                    found.append(store.get("description"))
        return sorted(found)


async def _finish_work(store: GraphRAGKnowledgeBase, *, embeds: bool) -> None:
    """Finish the work of a process that was killed."""

    def find() -> tuple[bool, bool]:
        embedded, total = store.coverage()
        return store.unfinished_erasure, store.jobs.next() is not None or (embeds and embedded < total)

    erases, adds = await to_thread.run_sync(find)
    if erases:
        await store.erase()
    if adds:
        await store.worker.drain()


def _read_notes(store: GraphRAGKnowledgeBase) -> list[Note]:
    """Read all notes of a store, latest first. Blocks."""
    rows = store.documents.list(limit=2 * _MOST_NOTES)
    texts = store.documents.texts([row.key for row in rows])
    notes = [
        Note.of(row.uri.removeprefix(_ADDRESS), texts[row.key], row.metadata)
        for row in rows
        if row.key in texts
    ]
    return sorted(notes, key=lambda note: -note.created)


def _merge(known: dict[str, Note], new: NewNote, *, source: NoteSource, run: Run | None) -> Note:
    """Add a new note to known ones, unless it is among them; return it as it is then.

    A note that it corrects is among its earlier texts then.
    """
    same = next((each for each in known.values() if same_text(each.text, new.text)), None)
    if same is not None:
        wrong = known.pop(new.replaces, None) if new.replaces != same.id else None
        if wrong is not None:
            known[same.id] = same = replace(same, earlier=(*same.earlier, f"{wrong.day}: {wrong.text}"))
        return same
    old = next((each for each in known.values() if new.slot and each.slot == new.slot), None)
    if new.replaces:
        old = known.get(new.replaces)
        if old is None:
            raise NotFoundError(
                f"There is no note {new.replaces[:50]!r}.",
                advice="Take the id from `recall`, or give none.",
            )
    note = Note(
        id=_unused_id(known) if old is None else old.id,
        text=new.text,
        kind=new.kind,
        slot=new.slot or ("" if old is None else old.slot),
        source=source,
        created=time.time(),
        run_id="" if run is None else run.id,
        session_id="" if run is None else run.request.session_id,
        earlier=() if old is None else (*old.earlier, f"{old.day}: {old.text}"),
    )
    known[note.id] = note
    return note


def _unused_id(known: Container[str]) -> str:
    while (id_ := f"m{secrets.token_hex(3)}") in known:
        pass
    return id_
