"""The tools: search, read, list, add and remove documents, follow and cancel jobs, explore the graph."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Literal

import anyio
from anyio import to_thread
from pydantic import Field

from loom_core.errors import InvalidInputError, NotFoundError
from loom_core.knowledge.ingest.chunking.boundaries import sentence_ends
from loom_core.knowledge.ingest.extraction_estimate import ConfirmationNeededError
from loom_core.server.calls.context import ToolContext, progress
from loom_core.server.calls.elicitation import can_ask, consent
from loom_core.server.calls.tasks import become_task
from loom_core.server.protocol.factory import LoomServer
from loom_core.server.protocol.results import TextBudget, ToolReply, tool_result
from loom_core.server.search.citations import reading_text
from loom_core.server.search.search_tool import (
    AnswerLimit,
    Detail,
    Filters,
    PassageLimit,
    Question,
    TextLimit,
    TextStart,
    search_tool,
)
from loom_core.storage.ownership import holder_of
from loom_kb.graph_pages.app import GRAPH_TOOL_META
from loom_kb.job_facts import info_of_parts
from loom_kb.language_model import configuration
from loom_kb.models import (
    AddResult,
    CancelResult,
    DocumentInfo,
    EntityInfo,
    FetchResult,
    GraphResult,
    JobInfo,
    JobResult,
    OverviewInfo,
    QueryResult,
    RelationInfo,
    RemoveResult,
    SourceDetails,
    SourcesResult,
)
from loom_kb.service import KnowledgeService, document_info, estimate_info, position
from loom_kb.texts import (
    UNFORESEEN_QUESTION,
    confirmation_question,
    confirmation_text,
    describe_holder,
    document_line,
    extraction_of,
    graph_text,
    job_text,
    overview_text,
    query_text,
    removal_question,
    source_line,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.knowledge.interface import EntityEdge, EntityNode
    from loom_core.knowledge.rag.knowledge_base import GraphRAGKnowledgeBase
    from loom_core.knowledge.rag.requests import AddRequest
    from loom_core.knowledge.store import Job
    from loom_kb.settings import Settings

__all__ = ["QUERY_HEAD", "register_tools"]

_ADD_WAIT = 3.0  # seconds that `add` waits before it returns a job
_MANY = 20  # documents that are removed at once without asking the user
_CONFIRM = "call `{}` again with the same arguments and confirm: true"
QUERY_HEAD = (
    "Search the user's own documents and notes, in any language, for passages that answer a question. Use it "
    "before answering anything that these may know better than you: facts, names, procedures, decisions, "
    "code and numbers from the user's files. Not for general knowledge or the web."
)
_QUERY_TAIL = (
    "Ask one whole question in the user's language. Returns numbered passages with title and address: cite "
    "them as [1], [2]. Read more with fetch(id)."
)
_Source = Annotated[str | None, Field(description="Knowledge base; left out, all.")]
"""Argument that selects a knowledge base."""

_MAX_PATH = 4
_MAX_NAMES = 20
_MAX_QUOTE = 240  # characters of a passage that are quoted as evidence
_WHOLE = math.inf
"""Seconds to wait for the end of a job, however long it takes."""

_JOB_WAIT = 45.0  # below the 50 s after which hosts give up
_ID = "Id that `add` returned"


def register_tools(server: LoomServer, service: KnowledgeService) -> None:
    """Register all tools of the full profile."""
    _register_reading(server, service)
    _register_writing(server, service)
    _register_removing(server, service)
    _register_job_tools(server, service)
    _register_graph(server, service)


def _register_reading(server: LoomServer, service: KnowledgeService) -> None:
    @search_tool(
        server,
        title="Search knowledge",
        head=QUERY_HEAD,
        tail=_QUERY_TAIL,
        sources=service.describe_sources,
        without_sources="There is no knowledge base yet: `add` makes one.",
        open_world=False,
    )
    async def query(
        query: Question,
        source: _Source = None,
        filters: Filters = None,
        limit: PassageLimit = 5,
        response_format: Detail = "concise",
        max_tokens: AnswerLimit = 6000,
    ) -> ToolReply[QueryResult]:
        result = await service.query(query, source=source, filters=dict(filters or {}), limit=limit)
        detailed = response_format == "detailed"
        text, shown = query_text(result, detailed=detailed, max_tokens=max_tokens)
        result = result.model_copy(update={"passages": result.passages[:shown]})
        return tool_result(text, result if detailed else result.concise())

    @server.tool(
        title="Read a document",
        description=(
            "Read a document, or more around a passage of `query` that is cut short. Returns the text, and "
            "where to go on."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def fetch(
        id: Annotated[str, Field(description="Id of a passage or document, or a URI.")],  # noqa: A002
        source: _Source = None,
        start: TextStart = None,
        max_tokens: TextLimit = 4000,
    ) -> ToolReply[FetchResult]:
        result = await service.fetch(id, source=source, start=start, tokens=max_tokens)
        return tool_result(reading_text(result), result)

    @server.tool(
        title="List sources",
        description=(
            "List the knowledge bases, or with `source` the documents of that one, or with `overview` its "
            "topics. Use it to see what can be searched. Returns names, counts, filters and ids."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def sources(
        source: Annotated[str | None, Field(description="Knowledge base whose documents to list.")] = None,
        overview: Annotated[
            bool, Field(description="Topics with key terms, documents and sentences, in place of a list.")
        ] = False,
        limit: Annotated[int, Field(ge=1, le=200)] = 50,
        cursor: Annotated[str | None, Field(description="`next_cursor` of the page before.")] = None,
    ) -> ToolReply[SourcesResult]:
        if overview:
            return await _give_overview(service, source)
        return await _list_sources(service, source, limit, cursor)


def _add_description(settings: Settings) -> str:
    """Describe `add` with the kinds of documents it can read on this server."""
    kinds, uses, limits = ["a text"], "something remembered", "It modifies the knowledge base only."
    read: list[str] = []
    if settings.roots:
        kinds.append("files and folders")
        uses += " or a folder made searchable"
        folders = ", ".join(map(str, settings.roots))
        read.append(f"`paths` may name files and folders under: {folders[:600]}.")
        limits = "It modifies the knowledge base, never the files."
    if settings.allow_urls:
        kinds.append("web pages")
        read.append("`urls` may name web pages.")
    if read:
        read.append(
            "Markdown, text, HTML, PDF, Office and OpenDocument, EPUB, e-mail, notebooks, CSV, JSON and "
            "source code are read."
        )
    else:
        read.append("This server reads no files or web pages: it runs without --root and --allow-urls.")
    listed = " or ".join(kinds) if len(kinds) < 3 else f"{', '.join(kinds[:-1])}, or {kinds[-1]}"
    return (
        f"Add {listed} to a knowledge base. Use it when the user wants {uses}. {' '.join(read)} Unchanged "
        f"documents cost nothing, changed ones are replaced. {limits} Returns within seconds with a job: "
        "small additions are done by then, for large ones ask `job`."
    )


def _unusable(settings: Settings) -> list[str]:
    """Return the arguments of `add` that cannot work on this server."""
    usable = {"paths": bool(settings.roots), "urls": settings.allow_urls}
    return [name for name, works in usable.items() if not works]


def _register_writing(server: LoomServer, service: KnowledgeService) -> None:
    @server.tool(
        title="Add documents",
        description=_add_description(service.settings),
        hidden=_unusable(service.settings),
        read_only=False,
        destructive=True,
        idempotent=True,
        open_world=service.settings.allow_urls,
        task="optional",
    )
    async def add(
        ctx: ToolContext,
        text: Annotated[str | None, Field(description="Markdown or plain text of one document.")] = None,
        paths: Annotated[list[str] | None, Field(description="Files and folders to read.")] = None,
        urls: Annotated[
            list[str] | None,
            Field(description="Web pages to fetch.", max_length=500, examples=[["https://example.com/"]]),
        ] = None,
        source: Annotated[
            str | None, Field(description="Knowledge base, made if there is none; `default` if left out.")
        ] = None,
        title: Annotated[str, Field(description="Title of the text.", max_length=300)] = "",
        uri: Annotated[
            str, Field(description="Address of the text; the same one replaces it later.", max_length=500)
        ] = "",
        tags: Annotated[list[str] | None, Field(description="For the filter `tags`.")] = None,
        description: Annotated[
            str, Field(description="What a new knowledge base holds.", max_length=300)
        ] = "",
        confirm: Annotated[
            bool,
            Field(
                description="The user agreed to the estimate; counts only where your client cannot ask them."
            ),
        ] = False,
    ) -> ToolReply[AddResult]:
        metadata: dict[str, Any] = {"tags": tags} if tags else {}
        request = await _request(service, text, paths, urls, title=title, uri=uri, metadata=metadata)
        addition = _Addition(service=service, request=request, source=source, description=description)
        try:
            unforeseen = bool(urls) and bool(configuration(service.settings.llm))
            parts, job = await addition.agree_and_submit(ctx, confirm=confirm, unforeseen=unforeseen)
        except ConfirmationNeededError as error:
            asked = AddResult(documents=[], estimate=estimate_info(error.estimate))
            return tool_result(confirmation_text(error.estimate), asked)
        info = await _wait_for_job(parts, job, _ADD_WAIT, ctx)
        if info.finished_at is None and await become_task(
            ctx, f"adding to {info.source}", on_cancel=partial(_cancel, parts, job)
        ):
            info = await _wait_for_job(parts, job, _WHOLE, ctx)
        documents = [each for part in parts for each in await to_thread.run_sync(_list_added, part, job)]
        lines = [job_text([info]), *map(document_line, documents)]
        if info.state in {"queued", "running"}:
            lines.append(f'It goes on in the background. Ask job(id="{info.id}") how far it is.')
        return tool_result("\n".join(lines), AddResult(job=info, documents=documents))


def _register_removing(server: LoomServer, service: KnowledgeService) -> None:
    @server.tool(
        title="Remove documents",
        description=(
            "Remove documents from a knowledge base, with everything that only they support. Irreversible; "
            "the files are not touched. Use it only when the user asks for it. Returns what was removed."
        ),
        read_only=False,
        destructive=True,
        idempotent=True,
        open_world=False,
    )
    async def remove(
        ctx: ToolContext,
        ids: Annotated[
            list[str], Field(description="Ids or URIs of documents.", min_length=1, max_length=500)
        ],
        source: _Source = None,
        confirm: Annotated[
            bool,
            Field(
                description=f"The user agreed to removing more than {_MANY} documents at once; "
                "counts only where your client cannot ask them."
            ),
        ] = False,
    ) -> ToolReply[RemoveResult]:
        if len(ids) > _MANY:
            question = removal_question(len(ids), source)
            await consent(ctx, question, confirmed=confirm, otherwise=_CONFIRM.format("remove"))
        removed, unknown = await service.remove(ids, source=source)
        lines = [f"Removed {len(removed)} of {len(ids)} documents.", *map(document_line, removed)]
        lines += [f"- unknown: {id_}" for id_ in unknown]
        return tool_result("\n".join(lines), RemoveResult(removed=removed, unknown=unknown))


def _register_graph(server: LoomServer, service: KnowledgeService) -> None:
    @server.tool(
        title="Explore the graph",
        description=(
            "Explore how people, places, things and terms of the documents are connected: what is around "
            "`entity`, or the path from it to `to`. Use it for overviews and connections; for facts use "
            "`query`. Returns relations, each with a sentence that says so and the id of its passage."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
        meta=GRAPH_TOOL_META,
    )
    async def graph(
        entity: Annotated[str, Field(description="A name as the documents use it.", min_length=1)],
        to: Annotated[str | None, Field(description="Another name.")] = None,
        source: Annotated[
            str | None, Field(description="Knowledge base; needed if there are several.")
        ] = None,
        hops: Annotated[int, Field(ge=1, le=3)] = 1,
        limit: Annotated[int, Field(description="Entities per hop.", ge=1, le=100)] = 20,
    ) -> ToolReply[GraphResult]:
        knowledge_base = await service.one(source)
        result = await _explore(knowledge_base, entity, to=to or None, hops=hops, limit=limit)
        return tool_result(graph_text(result), result)


async def _request(
    service: KnowledgeService,
    text: str | None,
    paths: list[str] | None,
    urls: list[str] | None,
    *,
    title: str,
    uri: str,
    metadata: dict[str, Any],
) -> AddRequest:
    """Build the request from the arguments of `add`."""
    if text or paths or urls:  # empty ones in the same call come from hosts that fill in every argument
        text, paths, urls = text or None, paths or None, urls or None
    if [text, paths, urls].count(None) != 2:
        unusable = _unusable(service.settings)
        names = [f"`{name}`" for name in ("text", "paths", "urls") if name not in unusable]
        kinds = f"one of {', '.join(names[:-1])} and {names[-1]}" if len(names) > 1 else names[0]
        raise InvalidInputError(f"Give {kinds}.", advice="One call adds one kind.")
    if paths is not None:
        allowed = await service.check_paths(paths)
        return await service.request_files(allowed, metadata=metadata, roots=service.settings.roots)
    if urls is not None:
        return await service.request_pages(urls, metadata=metadata)
    titles, uris = [title] if title else [], [uri] if uri else []
    return service.request_texts([text or ""], titles=titles, uris=uris, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Addition:
    """A request to add documents, which may need the user's confirmation."""

    service: KnowledgeService
    request: AddRequest
    source: str | None
    description: str

    async def agree_and_submit(
        self, ctx: ToolContext, *, confirm: bool, unforeseen: bool
    ) -> tuple[list[GraphRAGKnowledgeBase], str]:
        """Submit it, after asking the user if a language model would have to read a large amount.

        Args:
            ctx: the call.
            confirm: whether the model says that the user has agreed.
            unforeseen: whether the amount for the language model is known only later.

        Raises:
            ConfirmationNeededError: it would, and the client cannot ask.
            ConsentError: the user declined.
        """
        if not can_ask(ctx):
            return await self._submit(confirm=confirm)
        question = UNFORESEEN_QUESTION
        if not (confirm and unforeseen):
            try:
                return await self._submit(confirm=False)
            except ConfirmationNeededError as error:
                question = confirmation_question(error.estimate)
        await consent(ctx, question, confirmed=confirm, otherwise=_CONFIRM.format("add"))
        return await self._submit(confirm=True)

    async def _submit(self, *, confirm: bool) -> tuple[list[GraphRAGKnowledgeBase], str]:
        request = replace(self.request, confirm=confirm)
        return await self.service.add(request, source=self.source, description=self.description)


async def _list_sources(
    service: KnowledgeService, source: str | None, limit: int, cursor: str | None
) -> ToolReply[SourcesResult]:
    entries = await to_thread.run_sync(service.library.list)
    if not source:
        details = [
            SourceDetails(
                name=entry.name,
                description=entry.source.description,
                documents=entry.documents,
                passages=entry.chunks,
                filters=list(entry.source.supported_filters),
                extraction=extraction_of(entry.llm),
                held_by=describe_holder(await to_thread.run_sync(holder_of, entry.folder)),
            )
            for entry in entries
        ]
        budget = TextBudget(narrow="a source", separator="\n")
        for d in details:
            budget.add(source_line(d))
        unusable = await service.unusable()
        for line in unusable:
            budget.add(f"- {line}")
        text = budget.text() if details or unusable else "There is no knowledge base yet: `add` makes one."
        return tool_result(text, SourcesResult(sources=details, documents=[]))
    listed = await service.list_documents(source, limit=limit + 1, cursor=position(cursor))
    rows = [(after, document_info(row)) for after, row in listed]
    budget = TextBudget(narrow="the cursor", separator="\n")
    for _, document in rows[:limit]:
        budget.add(document_line(document))
    documents = [document for _, document in rows[: budget.shown]]
    more = str(rows[budget.shown - 1][0]) if len(rows) > budget.shown else None
    text = budget.text() if documents else "No more documents."
    if more:
        text += f'\n[more: cursor="{more}"]'
    return tool_result(text, SourcesResult(sources=[], documents=documents, next_cursor=more))


async def _give_overview(service: KnowledgeService, source: str | None) -> ToolReply[SourcesResult]:
    knowledge_base = await service.one(source)
    overview = await knowledge_base.overview()
    result = SourcesResult(sources=[], documents=[], overview=OverviewInfo.of(knowledge_base.name, overview))
    return tool_result(overview_text(knowledge_base.name, overview), result)


def _list_added(knowledge_base: GraphRAGKnowledgeBase, job: str) -> list[DocumentInfo]:
    found = knowledge_base.job(job)
    if found.request.keys().isdisjoint({"texts", "urls"}):
        return []
    items = knowledge_base.jobs.report(found, ["added", "updated", "unchanged"])
    rows = [knowledge_base.documents.get(item.uri) for item in items]
    return [document_info(row) for row in rows if row is not None]


async def _explore(
    knowledge_base: GraphRAGKnowledgeBase, entity: str, *, to: str | None, hops: int, limit: int
) -> GraphResult:
    """Return the neighbourhood of an entity, or a path to another.

    Raises:
        NotFoundError: there is no such entity, or no path.
    """
    return await to_thread.run_sync(_explore_graph, knowledge_base, entity, to, hops, limit)


def _explore_graph(
    knowledge_base: GraphRAGKnowledgeBase, entity: str, to: str | None, hops: int, limit: int
) -> GraphResult:
    start = _find(knowledge_base, entity)
    names = knowledge_base.aliases.names_of(start.key)[:_MAX_NAMES]
    associations = knowledge_base.associations()
    if to is None:
        near, around = associations.around([start.key], hops=hops)
        keys = near[1 : limit * hops + 1]
        shown = {start.key, *keys}
        edges = [edge for edge in around if edge.subject in shown and edge.object in shown][: 2 * limit]
    else:
        end = _find(knowledge_base, to)
        path = associations.path(start.key, end.key, steps=_MAX_PATH)
        if path is None:
            raise NotFoundError(
                f"No path of up to {_MAX_PATH} relations leads from {start.name!r} to {end.name!r}.",
                advice="Ask `query` about both; passages may connect what the graph does not.",
            )
        edges, keys = path, [start.key]
        for edge in path:
            keys.append(edge.object if edge.subject == keys[-1] else edge.subject)
    known = {node.key: node for node in knowledge_base.graph.nodes(keys)}
    nodes = [known[key] for key in keys if key in known]
    return GraphResult(
        entity=start.name,
        also_known_as=[name for name in names if name != start.name],
        entities=[EntityInfo(name=node.name, type=node.type, mentions=node.mentions) for node in nodes],
        relations=_relations(knowledge_base, [start, *nodes], edges),
        path=[node.name for node in nodes] if to is not None else [],
    )


def _find(knowledge_base: GraphRAGKnowledgeBase, name: str) -> EntityNode:
    graph = knowledge_base.graph
    keys = graph.search(name, limit=6)
    nodes = {node.key: node for node in graph.nodes(keys)}
    if not nodes:
        raise NotFoundError(
            f"There is no entity like {name!r} in {knowledge_base.name!r}.",
            advice="Names are those that the documents use; `query` finds passages by meaning.",
        )
    return nodes[keys[0]]


def _relations(
    knowledge_base: GraphRAGKnowledgeBase, nodes: Sequence[EntityNode], edges: Sequence[EntityEdge]
) -> list[RelationInfo]:
    graph = knowledge_base.graph
    names = {node.key: node.name for node in nodes}
    missing = {key for edge in edges for key in (edge.subject, edge.object)} - names.keys()
    names |= graph.names_of(sorted(missing))
    told: list[RelationInfo] = []
    for edge in edges:
        quote, passage = "", ""
        for chunk, start, end in graph.evidence(edge, limit=1):
            row = knowledge_base.documents.chunks([chunk]).get(chunk)
            if row is not None:
                quote = _quote(row.text, start, end)
                passage = row.id
        told.append(
            RelationInfo(
                subject=names.get(edge.subject, ""),
                predicate=edge.predicate,
                object=names.get(edge.object, ""),
                support=edge.support,
                evidence=quote,
                passage_id=passage,
            )
        )
    return told


def _quote(text: str, start: int, end: int) -> str:
    """Return the sentences that hold a span of a text, or the span if these are too long to quote."""
    paragraph = text.rfind("\n\n", 0, start) + 1
    floor = max(paragraph, start - _MAX_QUOTE)
    first = max(sentence_ends(text, floor, start), default=floor)
    after = text.find("\n\n", end)
    limit = len(text) if after < 0 else after
    last = next(sentence_ends(text, end - 1, limit), limit)
    if last - first > _MAX_QUOTE:
        first, last = start, min(end, start + _MAX_QUOTE)
    return " ".join(text[first:last].split())


def _register_job_tools(server: LoomServer, service: KnowledgeService) -> None:
    """Register `job`, which is read-only, so that no host asks the user at each poll, and `job_cancel`."""

    @server.tool(
        title="Follow jobs",
        description=(
            "See how far adding documents is, which files failed and why, and how many were skipped. Returns "
            "state, counts and problems."
        ),
        read_only=True,
        destructive=False,
        idempotent=True,
        open_world=False,
        task="optional",
    )
    async def job(
        ctx: ToolContext,
        id: Annotated[str | None, Field(description=f"{_ID}; left out, the newest jobs.")] = None,  # noqa: A002
        action: Annotated[
            Literal["status", "wait", "cancel"],
            Field(
                description="`wait` returns at its end, or after 45 s.",
                json_schema_extra={"enum": ["status", "wait"]},
            ),
        ] = "status",
        cursor: Annotated[
            str | None,
            Field(description="`next_cursor`: further problems of the id, or older jobs."),
        ] = None,
    ) -> ToolReply[JobResult]:
        if action == "cancel":  # a former action of this tool
            raise InvalidInputError("`job` is read-only.", advice="Call `job_cancel` with the id.")
        if not id:
            if action != "status":
                raise InvalidInputError(f"To {action}, give the job's id.")
            newest = await service.jobs(cursor=cursor)
            more = f'\n[older jobs: job(cursor="{newest.next_cursor}")]' if newest.next_cursor else ""
            return tool_result(job_text(newest.jobs) + more, newest)
        parts = [part for part, _ in await service.job(id)]
        seconds = 0.0
        if action == "wait":
            seconds = _WHOLE if await become_task(ctx, f"waiting for {id}") else _JOB_WAIT
        info = await _wait_for_job(parts, id, seconds, ctx, after=position(cursor))
        return tool_result(job_text([info], page=bool(cursor)), JobResult(jobs=[info]))

    @server.tool(
        title="Cancel a job",
        description=(
            "Cancel a job that `add` began; what it has added stays. Use it only when the user asks for it. "
            "Returns its state."
        ),
        read_only=False,
        destructive=False,
        idempotent=True,
        open_world=False,
    )
    async def job_cancel(
        id: Annotated[str, Field(description=f"{_ID}.", min_length=1)],  # noqa: A002
    ) -> ToolReply[CancelResult]:
        parts = [part for part, _ in await service.job(id)]
        await _cancel(parts, id)
        info = await to_thread.run_sync(_facts, parts, id)
        return tool_result(job_text([info]), CancelResult(id=id, state=info.state))


async def _cancel(parts: Sequence[GraphRAGKnowledgeBase], job: str) -> None:
    for part in parts:
        await part.cancel_job(job)


def _facts(parts: Sequence[GraphRAGKnowledgeBase], job: str, after: int = 0) -> JobInfo:
    return info_of_parts([(part, part.job(job)) for part in parts], after=after)


async def _wait_for_job(
    parts: Sequence[GraphRAGKnowledgeBase], job: str, seconds: float, ctx: ToolContext, *, after: int = 0
) -> JobInfo:
    """Wait until a job is over, reporting its progress to the client.

    Args:
        parts: where the job is; of a split knowledge base, its shards.
        job: its id.
        seconds: to wait at most.
        ctx: the call.
        after: cursor of its problems, see `info_of_parts`.
    """
    reporter = progress(ctx)
    states: dict[str, Job] = {}

    async def wait(part: GraphRAGKnowledgeBase) -> None:
        async def report(state: Job) -> None:
            states[part.name] = state
            processed = sum(each.processed for each in states.values())
            total = sum(each.total for each in states.values())
            told = f"{processed} of {total} documents"
            if state.state == "listing":
                told = f"listing: {total:,} files so far"
            await reporter.report(processed, told)

        await part.wait_for_job(job, progress=report)

    with anyio.move_on_after(seconds):
        async with anyio.create_task_group() as tasks:
            for part in parts:
                tasks.start_soon(wait, part)
    return await to_thread.run_sync(_facts, parts, job, after)
