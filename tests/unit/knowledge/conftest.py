"""A small corpus in two languages: films, the people who made them, and the towns they came from."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager

import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.ingest.chunking import create_chunker
from loom_core.knowledge.ingest.pipeline import Pipeline
from loom_core.knowledge.model import About, DocumentDraft, Extraction, Mention
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.store import KnowledgeStore

Web = Callable[[Mapping[str, Sequence[str]]], tuple[KnowledgeStore, dict[str, int]]]

CORPUS = {
    "The Silent Harbour": "The Silent Harbour is a 1974 drama film. Its director was Mara Lindqvist; the "
    "music is by Otto Brandt.",
    "Mara Lindqvist": "Mara Lindqvist came into the world in Visby, as the daughter of a fisherman, and made "
    "four pictures.",
    "Visby": "Visby lies on the island of Gotland. Its wall is from the thirteenth century.",
    "Otto Brandt": "Otto Brandt wrote music for the stage. He was at home in Lübeck.",
    "Lübeck": "Lübeck is a port on the Trave, known for marzipan.",
    "The Long Winter": "The Long Winter is a 1981 film about where a director was born. Its director was "
    "Pavel Horak.",
    "Pavel Horak": "Pavel Horak was born in Brno. The director was born into a family of glass makers.",
    "Film directors": "A director is born, not made, people say: where a director was born matters little to "
    "the film.",
    "Births in film": "Who was born where is asked of every film director.",
    "Brno": "Brno is a city in Moravia with two rivers.",
    "静港": "《静港》是一部1974年的电影，由林若曦执导，讲述港口的生活。",
    "林若曦": "林若曦生于厦门的一个渔民家庭，一生拍摄了四部作品。",
    "厦门": "厦门是福建省的海滨城市，有鼓浪屿。",
    "长冬": "《长冬》是一部关于导演的电影，导演陈远是成都人。",
    "片场": "导演在片场指挥拍摄，灯光师和摄影师听他的安排。",
    "Settings": "# Settings\n\nSet `max_retries` in `HTTPClient` to 3; see --retry-limit.",
}


@pytest.fixture
def kb() -> Iterator[GraphRAGKnowledgeBase]:
    """An empty one in memory, with vectors that need no model."""
    knowledge_base = GraphRAGKnowledgeBase.from_config(embedding_provider=create_embedder("hashing"))
    yield knowledge_base
    knowledge_base.close()


@pytest.fixture(scope="session")
def films() -> Iterator[GraphRAGKnowledgeBase]:
    """The corpus in memory, with vectors that need no model. No one changes it."""
    with _films("hashing") as knowledge_base:
        yield knowledge_base


@pytest.fixture(scope="module")  # the model is held no longer
def understood_films() -> Iterator[GraphRAGKnowledgeBase]:
    """The same with the vectors of a real model."""
    with _films("e5-small") as knowledge_base:
        yield knowledge_base


@contextmanager
def _films(embedder: str) -> Generator[GraphRAGKnowledgeBase]:
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder(embedder), name="films"
    )
    asyncio.run(
        knowledge_base.add_texts(
            list(CORPUS.values()),
            titles=list(CORPUS),
            uris=[f"file:///films/{n}/{title}.md" for n, title in enumerate(CORPUS)],
            metadatas=[{"tags": ["even" if n % 2 == 0 else "odd"], "rank": n} for n in range(len(CORPUS))],
        )
    )
    yield knowledge_base
    knowledge_base.close()


@pytest.fixture
def web() -> Iterator[Web]:
    """Makes a record of passages, each about its own name and mentioning the names that are listed.

    Gives the record, and the key of each passage by its name.
    """
    made: list[KnowledgeStore] = []
    pipeline = Pipeline(create_chunker("simple"), chunker_id="simple", extractor=None)

    def make(passages: Mapping[str, Sequence[str]]) -> tuple[KnowledgeStore, dict[str, int]]:
        store = KnowledgeStore(None)
        made.append(store)
        drafts = [DocumentDraft(uri=f"text:{name}", text=f"On {name}.") for name in passages]
        for document in asyncio.run(pipeline.prepare(drafts)):
            store.documents.upsert(document)
        keys = dict(zip(passages, store.documents.chunk_keys(), strict=True))
        store.graph.add(
            [
                (
                    keys[name],
                    Extraction(
                        mentions=tuple(Mention(each, 10 * n, 10 * n + 9) for n, each in enumerate(mentioned)),
                        abouts=(About(name, "title", 1.0),),
                    ),
                )
                for name, mentioned in passages.items()
            ]
        )
        return store, keys

    yield make
    for store in made:
        store.close()
