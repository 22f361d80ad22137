"""A store in memory and one in PostgreSQL to which the same happens hold the same, and answer the same."""

from __future__ import annotations

import random
import shutil
import subprocess
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import psycopg
import pytest
from pydantic import SecretStr

from loom_core.knowledge.filters import parse_filters
from loom_core.knowledge.indexes import LexicalIndexes
from loom_core.knowledge.ingest.boilerplate import judge_pending
from loom_core.knowledge.ingest.entity_linker import EntityLinker
from loom_core.knowledge.ingest.extraction import RuleSettings
from loom_core.knowledge.ingest.near_duplicates import compare_pending
from loom_core.knowledge.ingest.pipeline import Pipeline, PipelineSpec
from loom_core.knowledge.maintenance.check import check_changes, check_documents, check_graph, check_vectors
from loom_core.knowledge.maintenance.finding import CheckFinding
from loom_core.knowledge.maintenance.repair import repair
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.store.aliases import AliasDecision
from loom_core.knowledge.store.schema import POSTGRES_SCRIPTS, SCHEMA
from loom_core.storage.postgres import PostgresDatabase
from tests.fixtures.record_content import QUERIES
from tests.fixtures.store_servers.postgres import PASSWORD, run_postgres

pytestmark = pytest.mark.slow

_CHUNKS = {"min_tokens": 5, "target_tokens": 20, "max_tokens": 40}
PIPELINE = Pipeline.of(PipelineSpec("structure", _CHUNKS, RuleSettings()))
NOTICE = "Example Ltd, High Street 5, registered in Zell\n\nThis report is confidential."
NAMES = [
    "World Health Organization (WHO)",
    "Anna Berg",
    "system admin",
    "systemadmin",
    "杭州",
    "Cape Alder",
    "WHO",
    "Zell",
    "Ørsted",
]
KEYED = {  # as rows are there: their keys are assigned in the same order
    "documents": "key, id, uri",
    "chunks": "key, id, document, ordinal",
    "entities": "key, id, form, common",
    "changes": "seq, kind, key, count",
    "aliases": "entity, canonical",
    "new_names": "entity, newest",
    "unembedded": "chunk",
    "uncompared": "document",
    "unjudged": "document",
    "coverage": "chunks, unembedded, linked",
    "indexes": "name, generation, watermark",
    "sqlite_sequence": "name, seq",
}
Step = Callable[[KnowledgeStore, LexicalIndexes], object]


def text_of(dice: random.Random) -> str:
    sentences: list[str] = []
    for _ in range(dice.randrange(1, 9)):
        one, other, place = (dice.choice(NAMES) for _ in range(3))
        sentences.append(f"{one} met {other} near {place} in {dice.randrange(1900, 1910)}.")
    if dice.random() < 0.4:  # nearly the same as others
        sentences = [f"The report {number} on the works in {number} parishes." for number in range(30)]
        sentences[dice.randrange(30)] = f"Anna Berg saw it in {dice.randrange(1900, 1903)}."
    return "\n\n".join([*sentences, *([NOTICE] if dice.random() < 0.8 else [])])


KINDS = ["put", "put", "put", "remove", "link", "settle", "embed", "decide", "index", "prune"]


def step_of(dice: random.Random, kind: str, names: Sequence[int]) -> Step:
    """One thing that happens, the same whichever store it happens to."""
    uris = [f"text:{name}" for name in names]
    drafts = [
        DocumentDraft(
            uri,
            text_of(dice),
            dice.choice(["", *NAMES]),
            "given",
            metadata={"year": dice.randrange(1990, 1995), "tags": dice.sample(["a", "ä", "Z", "_"], 2)},
        )
        for uri in uris
    ]
    pair, is_same = sorted(dice.sample(["who", "zell", "杭州", "anna berg"], 2)), dice.random() < 0.6

    def happen(store: KnowledgeStore, words: LexicalIndexes) -> object:
        match kind:
            case "put":
                return store.documents.upsert_all([made for d in drafts if (made := PIPELINE.prepare_one(d))])
            case "remove":
                for uri in uris:
                    if (found := store.documents.get(uri)) is not None:
                        store.documents.remove(found.key)
            case "link":
                return EntityLinker(store, words, chunks=7).link_some()
            case "settle":
                while compare_pending(store) or judge_pending(store):
                    pass
            case "embed":
                hashes = list(dict.fromkeys(hash_ for _, hash_ in store.vectors.pending(9)))
                store.vectors.store(hashes, np.full((len(hashes), 2), 0.5**0.5, np.float32))
            case "decide":
                store.aliases.decide(AliasDecision(pair[0], pair[1], is_same))
                return store.aliases.regroup(list(store.graph.find(pair).values()))
            case "index":
                generation = store.changes.state("words").generation + 1
                store.changes.restart("words", generation=generation, watermark=store.changes.head())
            case _:
                return store.changes.prune(limit=50)
        return None

    return happen


def held(store: KnowledgeStore) -> dict[str, Counter[tuple[object, ...]]]:
    queries = QUERIES | {f"keys of {name}": f"SELECT {row} FROM {name}" for name, row in KEYED.items()}
    queries["keys of sqlite_sequence"] += " WHERE name IN ('documents', 'chunks', 'entities', 'changes')"
    return {name: Counter(map(tuple, store.database.rows(sql))) for name, sql in queries.items()}


def answers(store: KnowledgeStore) -> dict[str, object]:
    graph, documents = store.graph, store.documents
    chunks = documents.chunk_keys()
    shuffled = random.Random(3).sample(chunks, len(chunks))
    entities = list(range(1, graph.highest() + 3))
    edges = list(graph.all_edges())
    filters = [
        {"tags": "ä"},
        {"year": {"gte": 1992}},
        {"year": {"ne": 1990}, "tags": ["Z", "_"]},
        {"title": {"contains": "e"}},
        {"source": {"contains": "1"}},
    ]
    names = documents.field_names()
    return {
        "fields": names,
        "filters": [documents.chunk_keys_where(parse_filters(each, names)) for each in filters],
        "chunks": documents.chunks(chunks),
        "documents": [row.uri for row in documents.list(uri_prefix="text:1")],
        "counts": (documents.counts(), graph.counts(), documents.languages(), store.duplicates.count()),
        "mentions": graph.mentions_in(shuffled),
        "subjects": graph.abouts_in(shuffled),
        "entities": graph.entities_in(shuffled[:5]),
        "mentions of": [graph.mentions_of(entities, limit=limit) for limit in (1, 5, 50)],
        "asides": [graph.passing_mentions_of(entities, limit=limit) for limit in (1, 50)],
        "subjects of": [graph.abouts_of(entities, limit=limit) for limit in (1, 50)],
        "passages": graph.passage_counts(entities),
        "nodes": (list(graph.all_nodes()), graph.nodes(entities), graph.spellings(entities)),
        "edges": (sorted(edges, key=repr), sorted(graph.edges(entities), key=repr)),
        "evidence": (list(graph.all_evidence()), [graph.evidence(edge, limit=3) for edge in edges[:40]]),
        "together": [graph.mentioned_together(entity, sample=5) for entity in entities[:9]],
        "near": [graph.nearest(1, entity, limit=2) for entity in entities[:9]],
        "found": [graph.search(name, limit=9) for name in ("e", "who", "杭", "cape")],
        "recognised": sorted(graph.recognised()),
        "boilerplate": graph.boilerplate_among(chunks),
        "aliases": (store.aliases.suggestions(), store.aliases.groups(), store.aliases.pairs_of(entities)),
        "duplicates": sorted(map(repr, store.duplicates.groups())),
    }


def findings(store: KnowledgeStore) -> list[CheckFinding]:
    found = check_documents(store, PIPELINE.hash).findings
    return [*found, *check_graph(store), *check_vectors(store), *check_changes(store)]


@pytest.fixture
def sorting_postgres() -> Iterator[PostgresDatabase]:
    """A database that sorts as people do in a language, unless it is told otherwise: `a` before `B`."""
    with tempfile.TemporaryDirectory() as folder:  # a path of pytest is closed to other users
        locales = Path(folder)
        locales.chmod(0o755)
        make = ["localedef", "--no-archive", "--inputfile=en_US", "--charmap=UTF-8", locales / "en_US.utf8"]
        if shutil.which(make[0]) is None or subprocess.run(make, check=False, capture_output=True).returncode:
            pytest.skip("There are no sources of locales: Debian has them in the package locales.")
        with run_postgres(environment={"LOCPATH": folder}) as server:
            with psycopg.connect(server.url(), password=PASSWORD, autocommit=True) as connection:
                connection.execute("CREATE DATABASE sorting TEMPLATE template0 LOCALE 'en_US.utf8'")
            url, secret = server.url(database="sorting"), SecretStr(PASSWORD)
            database = PostgresDatabase(url, name="kb", schema=SCHEMA, more=POSTGRES_SCRIPTS, secret=secret)
            assert database.row("SELECT 'a' < 'B'")[0]
            yield database
            database.close()


@pytest.fixture(params=["empty_postgres", "sorting_postgres"])
def stores(request: pytest.FixtureRequest) -> Iterator[list[KnowledgeStore]]:
    with closing(KnowledgeStore(None)) as memory:
        yield [memory, KnowledgeStore(request.getfixturevalue(request.param))]


def test_the_same_history_ends_in_the_same_rows_and_answers(stores: list[KnowledgeStore]):
    dice = random.Random(11)
    for store in stores:
        store.set("dimension", "2")
    words = [LexicalIndexes(store, None) for store in stores]
    steps = [
        step_of(dice, dice.choice(KINDS), dice.sample(range(24), dice.randrange(1, 9))) for _ in range(60)
    ]
    steps += [step_of(dice, kind, range(24)) for kind in ("put", "settle", "embed", "link", "link")]
    for number, step in enumerate(steps):
        one, other = (step(store, index) for store, index in zip(stores, words, strict=True))
        assert one == other, number
    one, other = map(held, stores)
    assert {name: one[name] - other[name] for name in one} == {name: other[name] - one[name] for name in one}
    assert all(one[name] for name in ("aliases", "boilerplate", "likenesses", "relations", "vectors"))
    assert list(map(findings, stores)) == [[], []]
    one, other = map(answers, stores)
    for name, answer in one.items():
        assert answer == other[name], name
    for store in stores:
        with store.database.write() as db:
            for table in ("names", "unembedded", "fields"):
                db.execute(f"DELETE FROM {table}")
    one, other = map(findings, stores)
    assert one == other
    assert {finding.repair for finding in one} == {"fields", "graph", "queue"}
    for store in stores:
        repair(store, findings(store))
    assert list(map(findings, stores)) == [[], []]
