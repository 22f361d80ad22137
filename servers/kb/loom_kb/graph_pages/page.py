"""The command `graph --html`: a graph as one self-contained HTML page."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from anyio import to_thread

from loom_core.embedding.numpy_import import import_numpy
from loom_core.server.cli.console import out, out_json
from loom_core.server.pages.page import asset, page, write_page
from loom_kb.graph_pages.view import lay_out, view_of

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from loom_kb.graph_pages.view import GraphView, TextSpan, ViewPassage, ViewRelation
    from loom_kb.service import KnowledgeService

__all__ = ["graph", "graph_app_html", "graph_html"]

_SCRIPTS = ("words.js", "model.js", "picture.js", "panel.js")
_ACROSS = 0.15  # factor of the attraction between entities of different topics
_TO_TOPIC = 0.7  # attraction of an entity to the point of its topic
_LINK_WEIGHT = 0.35  # attraction of an entity that is only mentioned; that of a relation is 1


async def graph(service: KnowledgeService, args: argparse.Namespace) -> int:
    """Run `loom-kb graph --html FILE`; return the exit code."""
    knowledge_base = await service.library.get(args.kb)
    await import_numpy()
    view = await to_thread.run_sync(
        partial(view_of, knowledge_base, limit=args.limit, entity=args.entity, hops=args.hops)
    )
    html = await to_thread.run_sync(graph_html, view)
    size = await to_thread.run_sync(write_page, args.html, html)
    shown, relations = len(view.entities), sum(bool(relation.predicate) for relation in view.relations)
    if args.json:
        out_json(
            {
                "name": view.name,
                "file": str(args.html),
                "bytes": size,
                "entities": shown,
                "entities_in_all": view.entities_in_all,
                "relations": relations,
                "relations_in_all": view.relations_in_all,
                "passages": len(view.passages),
                "entities_without_passages": view.without_passages,
            }
        )
        return 0
    out(
        f"{args.html}: {shown:,} of {view.entities_in_all:,} entities, {relations:,} of "
        f"{view.relations_in_all:,} relations, {len(view.passages):,} passages, {size:,} bytes"
    )
    return 0


def graph_html(view: GraphView) -> str:
    """Render the page; deterministic. Blocks for 3 s with 5,000 entities."""
    return _page(f"{view.name} · Loom", ["graph.js"], _data(view))


def graph_app_html() -> str:
    """Render the page without a graph, for a host that supplies one: see app.js."""
    rows = ("topics", "types", "predicates", "documents", "entities", "relations")
    return _page("Loom", ["graph.js", "app.js"], {**dict.fromkeys(rows, ()), "waits": True})


def _page(title: str, scripts: Sequence[str], data: Mapping[str, object]) -> str:
    return page(
        title=title,
        body=_asset("page.html"),
        css=[_asset("graph.css")],
        scripts=[_asset(name) for name in (*_SCRIPTS, *scripts)],
        data=data,
    )


def _asset(name: str) -> str:
    return asset("loom_kb", f"pages/graph/{name}")


def _data(view: GraphView) -> dict[str, object]:
    """Build the data that the page's scripts read; model.js documents the columns."""
    positions = _positions(view)
    types = _Numbers()
    predicates = _Numbers()
    documents = _Numbers()
    offsets = [_Offsets(passage.text) for passage in view.passages]
    entities = [
        [
            entity.name,
            types.of(entity.type),
            entity.mentions,
            round(x, 1),
            round(y, 1),
            entity.also,
            -1 if entity.topic is None else entity.topic,
            _numbers(entity.spans, offsets),
        ]
        for entity, (x, y) in zip(view.entities, positions, strict=True)
    ]
    relations = [
        [
            relation.subject,
            predicates.of(relation.predicate),
            relation.object,
            relation.support,
            *_numbers([relation.span] if relation.span else [], offsets),
        ]
        for relation in view.relations
    ]
    passages = [_passage(passage, documents) for passage in view.passages]
    return {
        "name": view.name,
        "description": view.description,
        "focus": view.focus,
        "inAll": {"entities": view.entities_in_all, "relations": view.relations_in_all},
        "withoutPassages": view.without_passages,
        "topics": list(view.topics),
        "types": list(types.found),
        "predicates": list(predicates.found),
        "documents": list(documents.found),
        "entities": entities,
        "relations": relations,
        "passages": passages,
    }


def _positions(view: GraphView) -> list[list[float]]:
    """Lay the entities out, those of a topic around a point of its own."""
    count = len(view.entities)
    edges = [(relation.subject, relation.object, _attraction(view, relation)) for relation in view.relations]
    edges += [
        (number, count + entity.topic, _TO_TOPIC)
        for number, entity in enumerate(view.entities)
        if entity.topic is not None
    ]
    return lay_out(count + len(view.topics), edges)[:count].tolist()


def _attraction(view: GraphView, relation: ViewRelation) -> float:
    one, other = view.entities[relation.subject].topic, view.entities[relation.object].topic
    within = 1.0 if one == other else _ACROSS
    return within if relation.predicate else within * _LINK_WEIGHT


def _passage(passage: ViewPassage, documents: _Numbers) -> list[object]:
    document = documents.of((passage.title, passage.uri))
    return [document, passage.text, passage.heading, int(passage.before), int(passage.after)]


def _numbers(spans: Sequence[TextSpan], offsets: Sequence[_Offsets]) -> list[int]:
    return [
        n
        for span in spans
        for n in (span.passage, offsets[span.passage].of(span.start), offsets[span.passage].of(span.end))
    ]


class _Numbers:
    """Numbers distinct values from 0, in the order they come."""

    def __init__(self) -> None:
        self.found: dict[object, int] = {}

    def of(self, value: object) -> int:
        return self.found.setdefault(value, len(self.found))


class _Offsets:
    """Converts offsets to UTF-16 code units, as JavaScript counts them."""

    def __init__(self, text: str) -> None:
        self._wide = (
            [index for index, char in enumerate(text) if ord(char) > 0xFFFF] if not text.isascii() else []
        )

    def of(self, offset: int) -> int:
        from bisect import bisect_left

        return offset + bisect_left(self._wide, offset)
