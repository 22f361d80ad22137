"""Service layer of the tools and the command line: operations on knowledge bases, without wording."""

from __future__ import annotations

import math
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
from anyio import to_thread

from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.knowledge.interface import KnowledgeBaseProvider
from loom_core.knowledge.sources.federation.federation import Federation
from loom_core.knowledge.sources.library import Library
from loom_core.server.auth.caller import current_caller
from loom_core.server.search.citations import MatchInfo
from loom_core.server.search.excerpts import forms_of, read
from loom_kb.job_facts import PartOfJob, job_info, list_jobs
from loom_kb.language_model import NO_MODEL, VARIABLE, configuration
from loom_kb.models import DocumentInfo, EstimateInfo, FetchResult, JobResult, Passage, QueryResult
from loom_kb.settings import DEFAULT_SOURCE

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.ingest.extraction_estimate import ExtractionEstimate
    from loom_core.knowledge.model import KnowledgeItem
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.rag.requests import AddRequest, DocumentsRequest, FilesRequest, PagesRequest
    from loom_core.knowledge.retrieval.confidence import Match
    from loom_core.knowledge.retrieval.config import SearchOptions, Strategy
    from loom_core.knowledge.retrieval.searcher import SearchAnswer
    from loom_core.knowledge.sources.federation.federation import FederatedAnswer
    from loom_core.knowledge.sources.sharded import ShardedKnowledgeBase
    from loom_core.knowledge.sources.unified_tool import SourceInfo
    from loom_core.knowledge.store import DocumentRow
    from loom_kb.settings import Settings

__all__ = ["KnowledgeService", "document_info", "estimate_info", "job_info", "position", "readable_paths"]

_MAX_KEY = (1 << 63) - 1
_MICRO = 1_000_000  # cursors are whole numbers: times in microseconds


class KnowledgeService:
    """The knowledge bases of one run of the server or the command.

    `add` does nothing if a language model would have to read a large amount, unless that is confirmed.
    """

    def __init__(self, settings: Settings, *, look: float | None = None, deadline: float = 30.0) -> None:
        """Create the service; knowledge bases are opened by the first call that needs them.

        Args:
            settings: settings of the run.
            look: seconds for reading documents to estimate the cost of extraction; None for no limit.
            deadline: seconds for the answer of a knowledge base, once it is open. The default exceeds the
                timeout of embedding a question, so that the lexical index and the graph can still answer.

        Raises:
            ConfigError: the setting of the language model is not valid JSON.
        """
        self.settings = settings
        self.library = Library(
            settings.home,
            database=settings.database,
            embedder=settings.embedder,
            vectors=settings.vectors,
            lexical=settings.lexical,
            graph=settings.graph,
            llm=configuration(settings.llm),
            only=settings.sources,
            may_use=_may_use,
            program="loom-kb",
        )
        self._look = look
        self._deadline = deadline

    async def describe_sources(self) -> list[SourceInfo]:
        """Return the self-descriptions of the knowledge bases that the caller may use."""
        return [entry.source for entry in await to_thread.run_sync(self.library.list)]

    async def query(
        self,
        question: str,
        *,
        source: str | None = None,
        filters: dict[str, Any] | None = None,
        limit: int = 5,
        strategy: Strategy | None = None,
        options: SearchOptions | None = None,
    ) -> QueryResult:
        """Query one knowledge base, or all of them, each with the deadline of the service.

        Raises:
            NotFoundError: there is no such knowledge base, or none at all.
            LoomError: the only one that was asked failed; the error is its own.
            InvalidInputError: none of them accepts the question, the limit or the filters.
            SourceError: all of several failed.
        """
        names = [source] if source else await self._names()
        problems = [] if source else await self.unusable()
        asked = [_SingleBaseSource(self.library, name, strategy, options) for name in names]
        answer = await Federation(asked, deadline=self._deadline).query(
            question, filters=filters, limit=limit
        )
        return _result(asked, answer, problems)

    async def fetch(
        self, id_: str, *, source: str | None = None, start: int | None = None, tokens: int
    ) -> FetchResult:
        """Read a document, or the surroundings of a passage.

        Args:
            id_: id of a document or a passage, or a URI.
            source: knowledge base to look in; None for all.
            start: offset to read from; None for the start of the document, or the context of the passage.
            tokens: maximum tokens of the text.

        Raises:
            NotFoundError: there is nothing with this id.
        """
        for name in [source] if source else await self._names():
            for form in forms_of(id_):
                knowledge_base = await self.library.part(name, form)
                found = await to_thread.run_sync(
                    partial(read, knowledge_base, form, start=start, tokens=tokens)
                )
                if found is not None:
                    return FetchResult(
                        document_id=found.document_id,
                        source=name,
                        title=found.title,
                        uri=found.uri,
                        text=found.text,
                        start=found.start,
                        end=found.end,
                        length=found.length,
                        metadata=dict(found.metadata),
                    )
        raise NotFoundError(
            f"There is no document or passage {id_!r}.", advice="Take an id from `query` or `sources`."
        )

    async def add(
        self, request: AddRequest, *, source: str | None, description: str = ""
    ) -> tuple[list[GraphRAGKnowledgeBase], str]:
        """Submit a job that adds documents; return the knowledge base, or its shards, and the job's id.

        Args:
            request: the documents, see `request_texts`, `request_files` and `request_pages`.
            source: the knowledge base, created if it does not exist; None for the default.
            description: description of the content of a new one.

        Raises:
            ConfirmationNeededError: a language model would have to read a large amount, unconfirmed.
            ConfigError: the model cannot be asked, or is missing.
        """
        parts = await self.writable_parts(self._writable_name(source), description=description)
        # Of several shards the first estimates for all, and so rather too much: it knows few documents.
        await parts[0].confirm_extraction(request, seconds=self._look)
        from loom_core.knowledge.sources.sharded import submit_to_parts

        return parts, await submit_to_parts(parts, request)

    def request_texts(
        self,
        texts: Sequence[str],
        *,
        titles: Sequence[str] = (),
        uris: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
    ) -> DocumentsRequest:
        """Return a request to add texts; there are as many titles and URIs as texts, or none.

        Raises:
            InvalidInputError: there is no text.
        """
        if not texts or not all(text.strip() for text in texts):
            raise InvalidInputError("There is no text to add.", advice="A document needs at least one word.")
        from loom_core.knowledge.rag.requests import DocumentsRequest, text_drafts

        metadatas = [metadata or {}] * len(texts)
        return DocumentsRequest(
            text_drafts(texts, titles=titles or None, uris=uris or None, metadatas=metadatas)
        )

    async def request_files(
        self,
        paths: Sequence[Path],
        *,
        include: Sequence[str] = (),
        exclude: Sequence[str] = (),
        metadata: dict[str, Any] | None = None,
        roots: Sequence[Path] = (),
    ) -> FilesRequest:
        """Return a request to add files and folders, see `FilesRequest`.

        Raises:
            InvalidInputError: no path is given.
            NotFoundError: one of them does not exist.
        """
        if not paths:
            raise InvalidInputError("There is no path to add.", advice="Name at least one file or folder.")
        for path in paths:
            if not await anyio.Path(path).exists():
                raise NotFoundError(f"There is no file or folder {path}.", advice="Check the path.")
        from loom_core.knowledge.rag.requests import FilesRequest

        return FilesRequest(paths, include, exclude, metadata, roots=roots)

    async def request_pages(
        self, urls: Sequence[str], *, metadata: dict[str, Any] | None = None
    ) -> PagesRequest:
        """Return a request to add web pages, see `PagesRequest`.

        Raises:
            InvalidInputError: this server fetches no pages.
            NetError: one of the addresses is invalid, or the SSRF guard forbids it.
        """
        settings = self.settings
        if not settings.allow_urls:
            raise InvalidInputError(
                "This server fetches no web pages, as a text could make the model request any address.",
                advice="Give the text itself in `text`, or restart the server with --allow-urls.",
            )
        from loom_core.knowledge.ingest.page_fetcher import client_for
        from loom_core.knowledge.rag.requests import PagesRequest

        check = client_for(settings.allow_net).check
        addresses = [await to_thread.run_sync(check, url) for url in urls]  # before anything is created
        return PagesRequest(addresses, settings.allow_net, metadata)

    async def check_paths(self, paths: Sequence[str]) -> list[Path]:
        """Resolve paths that a client asks to be read, and check that all are under the roots.

        Raises:
            InvalidInputError: one of them is outside, or cannot be a path, or there is no root.
        """
        if not self.settings.roots:
            raise InvalidInputError(
                "This server reads no files: it was started without a folder to read from.",
                advice="Give the text itself in `text`, or restart the server with --root FOLDER.",
            )
        return await to_thread.run_sync(readable_paths, paths, self.settings.roots)

    async def job(self, id_: str) -> list[PartOfJob]:
        """Return a job by its id, with its knowledge base; of a split one, its parts.

        Raises:
            NotFoundError: no knowledge base has a job with this id.
        """
        for name in await self._names():
            parts = await self.library.parts(name)
            found = [(part, await to_thread.run_sync(part.jobs.get, id_)) for part in parts]
            if jobs := [(part, job) for part, job in found if job is not None]:
                return jobs
        raise NotFoundError(
            f"There is no job {id_!r}.", advice="Call `job` without an id, or `loom-kb jobs`, to see all."
        )

    async def jobs(self, *, limit: int = 10, cursor: str | None = None) -> JobResult:
        """List the newest jobs of all knowledge bases.

        Args:
            limit: maximum number.
            cursor: `next_cursor` of the previous page.

        Raises:
            InvalidInputError: it is not a cursor of this service.
        """
        before = position(cursor) / _MICRO if cursor else math.inf
        by_id: dict[str, list[PartOfJob]] = {}
        for entry in await to_thread.run_sync(self.library.list):
            for part in await self.library.parts(entry.name):
                newest = partial(part.jobs.list, limit=limit + 1, before=before)
                for job in await to_thread.run_sync(newest):
                    by_id.setdefault(job.id, []).append((part, job))
        # A job of several shards was created when its first part was.
        created = {id_: min(job.created_at for _, job in parts) for id_, parts in by_id.items()}
        ids = sorted(by_id, key=lambda id_: -created[id_])
        older = str(int(created[ids[limit - 1]] * _MICRO)) if len(ids) > limit else None
        listed = [by_id[id_] for id_ in ids[:limit]]
        return JobResult(jobs=await to_thread.run_sync(list_jobs, listed), next_cursor=older)

    async def remove(
        self, ids: Sequence[str], *, source: str | None = None
    ) -> tuple[list[DocumentInfo], list[str]]:
        """Remove documents by id or URI; returns those removed, and the unknown ids."""
        removed: dict[str, DocumentInfo] = {}
        forms = {id_: forms_of(id_) for id_ in ids}
        wanted = {form for each in forms.values() for form in each}
        for name in [source] if source else await self._names():
            knowledge_base = await self.library.open(name)
            for row in await knowledge_base.remove(sorted(wanted)):
                removed[row.id] = document_info(row)
                removed[row.uri] = document_info(row)
        gone = {
            removed[form].id: removed[form] for each in forms.values() for form in each if form in removed
        }
        return list(gone.values()), [id_ for id_, each in forms.items() if removed.keys().isdisjoint(each)]

    async def one(self, source: str | None) -> GraphRAGKnowledgeBase:
        """Return the knowledge base with a name, or the only one there is.

        Raises:
            InvalidInputError: no name is given, and there are several.
        """
        names = [source] if source else await self._names()
        if len(names) > 1:
            raise InvalidInputError(
                "There are several knowledge bases.", advice=f"Give `source`: {', '.join(names)}."
            )
        return await self.library.get(names[0])

    async def _names(self) -> list[str]:
        names = [entry.name for entry in await to_thread.run_sync(self.library.list)]
        if not names:
            if unusable := await self.unusable():
                raise NotFoundError(" ".join(unusable), advice="`loom-kb check` says what can be done.")
            raise NotFoundError(
                "There is no knowledge base yet.", advice="Add a document first; that makes one."
            )
        return names

    async def unusable(self) -> list[str]:
        """Return a line for each knowledge base that cannot be used, with the reason."""
        entries = await to_thread.run_sync(self.library.unusable)
        return [f"{entry.name} cannot be used: {entry.problem}." for entry in entries]

    def _writable_name(self, source: str | None) -> str:
        theirs = current_caller().sources
        only = self.settings.sources or (() if theirs is None else tuple(theirs))
        return source or (only[0] if len(only) == 1 else DEFAULT_SOURCE)

    async def list_documents(
        self, name: str, *, limit: int, cursor: int = 0
    ) -> list[tuple[int, DocumentRow]]:
        """List documents of a knowledge base, oldest first; of a split one, shard by shard.

        Args:
            name: its name.
            limit: maximum number.
            cursor: that of a document: those after it; 0 from the start.

        Returns:
            Each with its cursor.
        """
        parts = await self.library.parts(name)
        after, first = divmod(cursor, len(parts))
        found: list[tuple[int, DocumentRow]] = []
        for number in range(first, len(parts)):
            page = partial(parts[number].documents.list, after=after, limit=limit - len(found))
            found += [(row.key * len(parts) + number, row) for row in await to_thread.run_sync(page)]
            after = 0
            if len(found) == limit:
                break
        return found

    async def writable(
        self, name: str, *, description: str = "", embedder: str = ""
    ) -> GraphRAGKnowledgeBase:
        """Open a knowledge base for writing, and create it if it does not exist.

        Raises:
            ConfigError: a language model extracted from its documents, and this run has none: documents that
                are read again would lose what the model found.
        """
        knowledge_base = await self.library.get(name, create=True, description=description, embedder=embedder)
        await self._check_model(name, knowledge_base)
        return knowledge_base

    async def writable_parts(self, name: str, *, description: str = "") -> list[GraphRAGKnowledgeBase]:
        """As `writable`, but return the shards of one that is split."""
        if not await to_thread.run_sync(self.library.catalogue.shards, name):
            return [await self.writable(name, description=description)]
        parts = await self.library.parts(name)
        for part in parts:
            await self._check_model(name, part)
        return parts

    async def _check_model(self, name: str, knowledge_base: GraphRAGKnowledgeBase) -> None:
        llm = self.settings.llm
        model = ""
        if llm in {"", NO_MODEL}:
            model = await to_thread.run_sync(lambda: knowledge_base.extraction_model)
        if model and not llm:
            raise ConfigError(
                f"The language model {model} read the documents of {name!r}, and this program has none.",
                advice=f"Give it the same --llm, or set {VARIABLE}; --llm {NO_MODEL} is for rules alone.",
            )
        if model:
            await to_thread.run_sync(knowledge_base.forget_extraction_model)


def _may_use(name: str) -> bool:
    return current_caller().may_use(name)


def position(cursor: str | None) -> int:
    """Return the key of the document after which a cursor continues; 0 without a cursor.

    Raises:
        InvalidInputError: it is not a cursor of this service.
    """
    if not cursor:
        return 0
    if not (cursor.isascii() and cursor.isdigit() and len(cursor) < 20 and int(cursor) <= _MAX_KEY):
        raise InvalidInputError(
            f"{cursor[:200]!r} is not a cursor.", advice="Use `next_cursor` of the page before."
        )
    return int(cursor)


def document_info(row: DocumentRow) -> DocumentInfo:
    """Convert a document row to the form that the tools return."""
    return DocumentInfo(
        id=row.id, title=row.title, uri=row.uri, type=row.mime, language=row.language, length=row.length
    )


def estimate_info(estimate: ExtractionEstimate) -> EstimateInfo:
    """Convert an extraction estimate to the form that the tools return."""
    return EstimateInfo(
        passages=estimate.passages, requests=estimate.calls, tokens=estimate.tokens, cost=estimate.cost
    )


class _SingleBaseSource(KnowledgeBaseProvider):
    """A knowledge base of a library as a source for one query with one strategy.

    Attributes:
        answer: the answer to the query; None before, and if there is none.
    """

    def __init__(
        self, library: Library, name: str, strategy: Strategy | None, options: SearchOptions | None
    ) -> None:
        self._library = library
        self._name = name
        self._strategy: Strategy | None = strategy
        self._options = options
        self._opened: GraphRAGKnowledgeBase | ShardedKnowledgeBase | None = None
        self.answer: SearchAnswer | None = None

    @property
    def name(self) -> str:
        return self._name

    @property
    def description(self) -> str:
        return ""  # only the caller sees it

    @property
    def embedder_id(self) -> str:
        return "" if self._opened is None else self._opened.embedder_id

    @property
    def match(self) -> Match | None:
        return None if self.answer is None else self.answer.match

    async def start(self, seconds: float) -> None:
        """Open it; loading a model has a separate time limit, see `Library`."""
        self._opened = await self._library.open(self._name)

    async def query(
        self, query: str, limit: int = 5, filters: dict[str, Any] | None = None
    ) -> list[KnowledgeItem]:
        knowledge_base = self._opened or await self._library.open(self._name)
        answer = await knowledge_base.search(
            query, limit=limit, filters=filters, strategy=self._strategy, options=self._options
        )
        self.answer = self.answer or answer  # a follow-up query has other notes and another match
        return answer.items

    async def get_by_id(self, knowledge_id: str) -> KnowledgeItem | None:
        return await (await self._library.open(self._name)).get_by_id(knowledge_id)


def _result(
    asked: Sequence[_SingleBaseSource], answer: FederatedAnswer, problems: Sequence[str]
) -> QueryResult:
    answers = {each.name: each.answer for each in asked if each.answer is not None}
    notes = [
        f"{name}: {note}" if len(answers) > 1 else note for name, a in answers.items() for note in a.notes
    ]
    return QueryResult(
        passages=[_passage(number, found) for number, found in enumerate(answer.items, start=1)],
        match=MatchInfo.of(answer.match),
        embedded=sum(each.embedded for each in answers.values()),
        total=sum(each.chunks for each in answers.values()),
        notes=[*notes, *answer.notes, *problems],
    )


def _passage(number: int, item: KnowledgeItem) -> Passage:
    m = item.metadata
    source: str = m["knowledge_base"]
    repeats: Sequence[str] = m.get("duplicates", ())
    repeated = [f"the same is in {', '.join(repeats)}"] if repeats else []
    copies = (citation.rpartition(":") for citation in m.get("also_in", ()))  # no id of a passage has a colon
    return Passage(
        number=number,
        id=item.id.removeprefix(f"{source}:"),
        source=source,
        document_id=m["document_id"],
        title=m["title"],
        heading_path=m["heading_path"],
        uri=item.source,
        start=m["start"],
        end=m["end"],
        page=m["page"],
        text=item.content,
        relevance=item.relevance,
        scores=m["scores"],
        why=[*m["why"], *repeated, *(f"{other} has the same ({id_})" for other, _, id_ in copies)],
        answer_sentence=m.get("answer_sentence", ""),
    )


_SHOWN = 200  # characters of an invalid path in a message


def readable_paths(paths: Sequence[str], roots: Sequence[Path]) -> list[Path]:
    """Resolve paths that a client asks to be read, whether they exist or not. Blocks.

    Args:
        paths: absolute, or relative to the first root that has them.
        roots: folders that may be read; links and `..` are resolved before a path is compared with them.

    Raises:
        InvalidInputError: one of them is outside the roots, or cannot be a path.
    """
    real_roots = [root.resolve() for root in roots]
    found: list[Path] = []
    for path in paths:
        real = _real(path, real_roots)
        if not any(real.is_relative_to(root) for root in real_roots):
            raise InvalidInputError(
                f"{path} is outside the folders that this server may read.",
                advice=f"It may read: {', '.join(map(str, real_roots))}. Its --root option changes that.",
            )
        found.append(real)
    return found


def _real(path: str, roots: Sequence[Path]) -> Path:
    try:
        given = Path(path).expanduser()
        candidates = [given] if given.is_absolute() else [root / given for root in roots]
        return next((c.resolve() for c in candidates if c.exists()), candidates[0].resolve())
    except (OSError, ValueError, RuntimeError):  # too long, a NUL, a loop of links, an unknown `~user`
        raise InvalidInputError(f"{path[:_SHOWN]!r} cannot be a path.", advice="Check the path.") from None
