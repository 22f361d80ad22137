"""The link index gives the answers of the store after any history, and recovers from damage."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from loom_core.knowledge.indexes import LexicalIndexes
from loom_core.knowledge.indexes.links import KEPT, IndexedLinks, LinkIndex
from loom_core.knowledge.ingest.boilerplate import judge_pending
from loom_core.knowledge.ingest.entity_linker import EntityLinker
from loom_core.knowledge.ingest.extraction import RuleSettings
from loom_core.knowledge.ingest.near_duplicates import compare_pending
from loom_core.knowledge.ingest.pipeline import Pipeline, PipelineSpec
from loom_core.knowledge.model import DocumentDraft
from loom_core.knowledge.retrieval.channels import Channels, PreparedQuestion
from loom_core.knowledge.retrieval.config import RAGConfig
from loom_core.knowledge.retrieval.strategies import ChunkHit, retrieve
from loom_core.knowledge.store import KnowledgeStore
from loom_core.knowledge.store.aliases import AliasDecision
from loom_core.knowledge.store.graph import GraphTable
from loom_core.knowledge.store.schema import SCHEMA
from loom_core.storage import Database

Put = Callable[..., None]
PIPELINE = Pipeline.of(
    PipelineSpec("structure", {"min_tokens": 5, "target_tokens": 20, "max_tokens": 40}, RuleSettings())
)
NOTICE = "Example Ltd, High Street 5, registered in Zell\n\nThis report is confidential."
NAMES = [
    "World Health Organization (WHO)",
    "Anna Berg",
    "system admin",
    "systemadmin",
    "杭州",
    "《静港》",
    "Cape Alder",
    "WHO",
    "Zell",
    "harbour",
]
STEPS = ["put", "put", "put", "remove", "link", "settle", "decide", "hide", "restore"]
FIRST = [*["put"] * 9, "link", "settle"]
DECIDED = ["who", "zell", "杭州", "anna berg", "cape alder"]


def text_of(dice: random.Random) -> str:
    sentences: list[str] = []
    for _ in range(dice.randrange(1, 7)):
        one, other, place = (dice.choice(NAMES) for _ in range(3))
        sentences.append(f"{one} met {other} near {place} in {dice.randrange(1900, 1910)}, by the harbour.")
    if dice.random() < 0.3:
        sentences.append(f"{dice.choice(NAMES)}位于{dice.choice(NAMES)}，由安娜在港口建造。")
    return "\n\n".join([*sentences, *([NOTICE] if dice.random() < 0.8 else [])])


def happen(store: KnowledgeStore, words: LexicalIndexes, dice: random.Random, step: str) -> None:
    """Change the store in one of the ways in which it changes."""
    uris = [f"text:{n}" for n in dice.sample(range(24), dice.randrange(1, 6))]
    match step:
        case "put":
            titles = [dice.choice(["", *NAMES]) for _ in uris[1:]]
            drafts = [
                DocumentDraft(uri, text_of(dice), title, "given")
                for uri, title in zip(uris, ["harbour", *titles], strict=True)
            ]
            store.documents.upsert_all([made for d in drafts if (made := PIPELINE.prepare_one(d))])
        case "remove":
            for uri in uris:
                if (found := store.documents.get(uri)) is not None:
                    store.documents.remove(found.key)
        case "link":
            while EntityLinker(store, words, chunks=7).link_some():
                pass
        case "settle":
            while compare_pending(store) or judge_pending(store):
                pass
        case _:
            one, other = dice.sample(DECIDED, 2)
            one = "" if step == "hide" else one
            with store.database.write():
                if step == "restore":
                    one, other = dice.choice(
                        [(a.id, a.other) for a in store.aliases.decisions()] or [("", "x")]
                    )
                    store.aliases.clear_decision(one, other)
                else:
                    store.aliases.decide(AliasDecision(*sorted((one, other)), same=dice.random() < 0.7))
                changed = store.aliases.regroup(list(store.graph.find([one, other]).values()))
                store.changes.note("entity", sorted(changed))


def answers(links: GraphTable | IndexedLinks, *, entities: int, chunks: int) -> dict[str, object]:
    """Everything that is asked, about all entities and passages that there have been, and a few more."""
    every, passages = range(1, entities + 3), range(1, chunks + 3)
    found: dict[str, object] = {
        "documents": links.documents_of(passages),
        "boilerplate": links.boilerplate_among(passages),
        "in": links.links_in(passages),
        "nothing": (links.mentions_of([], limit=3), links.abouts_of([], limit=3), links.documents_of([])),
    }
    for limit in (1, 6, 15, KEPT, KEPT + 10):
        found[f"mentions {limit}"] = links.mentions_of(every, limit=limit)
        found[f"asides {limit}"] = links.passing_mentions_of(every, limit=limit)
        found[f"subjects {limit}"] = links.abouts_of(every, limit=limit)
    return found


def compare(store: KnowledgeStore, links: IndexedLinks | None) -> None:
    assert links is not None
    numbers = {"entities": store.graph.highest(), "chunks": store.documents.last_chunk()}
    expected, given = answers(store.graph, **numbers), answers(links, **numbers)
    for name, answer in expected.items():
        assert given[name] == answer, name


def up_to_date(store: KnowledgeStore, index: LinkIndex) -> IndexedLinks | None:
    index.sync_all()
    assert index.lag() == 0
    return index.current(store.changes.head())


@pytest.mark.parametrize(("seed", "few"), [(1, 500), (2, 20), (3, 0)])
def test_the_answers_are_those_of_the_store_after_every_change(
    store: KnowledgeStore, tmp_path: Path, seed: int, few: int
):
    """Some changes are applied in memory, some are read again after opening, and some make new files."""
    dice = random.Random(seed)
    words = LexicalIndexes(store, None)
    index = LinkIndex(store, tmp_path, few=few)
    seen = {"aliases": 0, "boilerplate": 0, "hidden": 0, "common": 0}
    for number in range(50):
        happen(store, words, dice, FIRST[number] if number < len(FIRST) else dice.choice(STEPS))
        action = dice.choice(["sync", "sync", "sync", "reopen", "prune", "rebuild", "wait"])
        if action == "reopen":
            index.close()
            index = LinkIndex(store, tmp_path, few=few)
        elif action == "prune":
            store.changes.prune()
        elif action == "rebuild":
            store.changes.mark_damaged("links", generation=store.changes.state("links").generation)
            index.close()
        if action != "wait":
            compare(store, up_to_date(store, index))
        (row,) = store.database.rows(
            "SELECT (SELECT COUNT(*) FROM aliases WHERE canonical != 0), (SELECT COUNT(*) FROM boilerplate), "
            "(SELECT COUNT(*) FROM aliases WHERE canonical = 0), (SELECT COUNT(*) FROM entities WHERE common)"
        )
        seen = {name: before + count for (name, before), count in zip(seen.items(), row, strict=True)}
    assert all(seen.values()), seen
    assert store.changes.state("links").generation > 2


def test_a_question_applies_a_few_changes_itself_and_reads_the_store_while_there_are_more(
    store: KnowledgeStore, put: Put, tmp_path: Path
):
    put("Zell is a town near Cape Alder.", "Cape Alder is a cape near Zell.")
    with closing(LinkIndex(store, tmp_path)) as index, closing(LinkIndex(store, tmp_path, few=1)) as strict:
        assert index.current(store.changes.head()) is None  # never built
        compare(store, up_to_date(store, index))
        compare(store, strict.current(store.changes.head()))  # what another process has written
        put("Anna Berg is a singer from Zell.", first=9)
        assert index.lag() > 0
        compare(store, index.current(store.changes.head()))
        assert index.lag() == 0
        assert strict.current(store.changes.head()) is None


def test_what_is_in_files_is_not_read_from_the_log_again(store: KnowledgeStore, put: Put, tmp_path: Path):
    put(*(f"Town {n} is a town near Zell." for n in range(9)))
    with closing(LinkIndex(store, tmp_path, few=0)) as index:
        compare(store, up_to_date(store, index))
        generation = store.changes.state("links").generation
        put("Anna Berg is a singer from Zell.", first=20)
        compare(store, up_to_date(store, index))
        state = store.changes.state("links")
        assert (state.generation, state.watermark) == (generation + 1, store.changes.head())
        assert [path.name for path in tmp_path.glob("links-*")] == [f"links-{generation + 1}"]
    with closing(LinkIndex(store, tmp_path, few=3)) as index:
        for key in (1, 2):
            store.changes.note("vector+", range(3 * key, 3 * key + 3))  # nothing to it
            index.sync_all()
        state = store.changes.state("links")
        assert (state.generation, state.watermark) == (generation + 1, store.changes.head())


def damage_nothing(folder: Path) -> None:
    """Only the log is incomplete."""


def truncate(folder: Path) -> None:
    (folder / "mentions").write_bytes((folder / "mentions").read_bytes()[:-8])


def flip(folder: Path) -> None:
    data = bytearray((folder / "abouts").read_bytes())
    data[0] ^= 4
    (folder / "abouts").write_bytes(data)


def remove_state(folder: Path) -> None:
    (folder / "state.json").unlink()


def garble_state(folder: Path) -> None:
    (folder / "state.json").write_text("[1, 2]")


@pytest.mark.parametrize("damage", [damage_nothing, truncate, flip, remove_state, garble_state])
def test_damaged_files_are_built_again(
    store: KnowledgeStore, put: Put, tmp_path: Path, damage: Callable[[Path], None]
):
    put("Zell is a town near Cape Alder.", "Cape Alder is a cape near Zell.")
    with closing(LinkIndex(store, tmp_path)) as index:
        index.sync_all()
    damage(tmp_path / "links-1")
    put("Anna Berg is a singer from Zell.", first=9)
    if damage is damage_nothing:
        with store.database.write() as db:
            db.execute("DELETE FROM changes WHERE seq < (SELECT MAX(seq) FROM changes)")
    with closing(LinkIndex(store, tmp_path)) as index:
        compare(store, up_to_date(store, index))
        assert store.changes.state("links").generation == 2
        assert [path.name for path in tmp_path.glob("links-*")] == ["links-2"]


def test_files_of_another_knowledge_base_are_built_again(store: KnowledgeStore, put: Put, tmp_path: Path):
    other = tmp_path / "other"
    other.mkdir()
    put("Zell is a town near Cape Alder.")
    with closing(KnowledgeStore(other / "record.db")) as strange:
        made = PIPELINE.prepare_one(DocumentDraft("text:1", "Anna Berg met Carl Moll."))
        assert made is not None
        strange.documents.upsert_all([made])
        with closing(LinkIndex(strange, other)) as index:
            index.sync_all()
    with closing(LinkIndex(store, tmp_path)) as index:
        index.sync_all()
    for path in (tmp_path / "links-1").iterdir():
        path.write_bytes((other / "links-1" / path.name).read_bytes())
    with closing(LinkIndex(store, tmp_path)) as index:
        compare(store, up_to_date(store, index))
        assert store.changes.state("links").generation == 2


def test_a_build_that_was_interrupted_starts_over(store: KnowledgeStore, put: Put, tmp_path: Path):
    put(*(f"Town {n} is a town near Zell." for n in range(9)))
    index = LinkIndex(store, tmp_path)
    assert index.sync()
    assert (tmp_path / "links-1").is_dir()  # as a kill leaves it
    assert not (tmp_path / "links-1" / "state.json").exists()
    with closing(LinkIndex(store, tmp_path)) as again:
        compare(store, up_to_date(store, again))


def test_without_a_folder_the_store_is_read(put: Put, store: KnowledgeStore):
    put("Zell is a town.")
    index = LinkIndex(store, None)
    assert not index.sync()
    assert index.current(store.changes.head()) is None


class CountingDatabase(Database):
    """Counts queries, each of which is a round trip where the database is a server."""

    queries = 0

    def row(self, sql: str, parameters: Sequence[object] = ()) -> Any:
        self.queries += 1
        return super().row(sql, parameters)

    def rows(self, sql: str, parameters: Sequence[object] = ()) -> list[Any]:
        self.queries += 1
        return super().rows(sql, parameters)


@pytest.fixture
def counted(tmp_path: Path) -> Iterator[tuple[KnowledgeStore, CountingDatabase]]:
    database = CountingDatabase(tmp_path / "record.db", schema=SCHEMA)
    store = KnowledgeStore(database)
    for number, name in enumerate(["Zell", "Cape Alder", "Anna Berg", "杭州"]):
        text = f"{name} is near Zell and Cape Alder, says Anna Berg. 安娜去过杭州。"
        made = PIPELINE.prepare_one(DocumentDraft(f"text:{number}", text, name, "given"))
        assert made is not None
        store.documents.upsert_all([made])
    yield store, database
    store.close()


def test_a_question_reads_the_store_a_few_times(
    counted: tuple[KnowledgeStore, CountingDatabase], tmp_path: Path
):
    store, database = counted
    words = LexicalIndexes(store, None).complete()
    question = PreparedQuestion.of("Who says that Cape Alder is near Zell?")
    with closing(LinkIndex(store, tmp_path)) as index:
        links = up_to_date(store, index)
        assert links is not None
        found: list[list[ChunkHit]] = []
        counts: list[int] = []
        for graph in (store.graph, links):
            database.queries = 0
            hits = retrieve(
                question,
                5,
                strategy="hybrid",
                channels=Channels(words, None),
                graph=graph,
                config=RAGConfig(),
            )
            found.append(hits.found)
            counts.append(database.queries)
    assert found[0] == found[1]
    assert found[0][0].named
    assert counts[1] <= 4 < counts[0]  # entities of the question; passages of two hops, and of the walk


def test_a_glance_has_what_single_queries_return(counted: tuple[KnowledgeStore, CountingDatabase]):
    store, database = counted
    store.set("embedder", "one")
    glance = store.glance()
    assert (glance.embedded, glance.chunks) == store.vectors.coverage()
    assert glance.head == store.changes.head() > 0
    assert glance.meta == {"embedder": "one"}
    with store.remember(glance.meta):
        store.set("embedder", "other")
        database.queries = 0
        assert (store.get("embedder"), store.get("name")) == ("one", "")
        assert database.queries == 0
        assert store.get("embedder", remembered=False) == "other"
        with store.remember(None):
            assert store.get("embedder") == "other"
        with closing(KnowledgeStore(None)) as another:
            assert another.get("embedder") == ""
    assert store.get("embedder") == "other"
