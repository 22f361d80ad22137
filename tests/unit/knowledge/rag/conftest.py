"""A small corpus in two languages: films, the people who made them, and the towns they came from."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from loom_core.embedding.registry import create_embedder
from loom_core.knowledge.rag import GraphRAGKnowledgeBase

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


@pytest.fixture(scope="session")
def films() -> Iterator[GraphRAGKnowledgeBase]:
    """The corpus in memory, with vectors. Nobody changes it."""
    knowledge_base = GraphRAGKnowledgeBase.from_config(
        embedding_provider=create_embedder("hashing"), name="films"
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
