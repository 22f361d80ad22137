"""Links: where they lead from the best passages, and how much what they lead to gains."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_core.knowledge.indexes.engines.memory_lexical import MemoryLexicalIndex
from loom_core.knowledge.retrieval.channels import Channels, PreparedQuestion
from loom_core.knowledge.retrieval.graph_expansion import (
    LinkSettings,
    Neighbourhood,
    WalkSettings,
    expand,
    graph_channel,
    link_entities,
    links_from,
    walk,
)
from loom_core.knowledge.text.analysis import analyse

pytestmark = pytest.mark.slow

SETTINGS = LinkSettings()
PASSAGES = {
    "Kraus House": ["Missouri", "Frank Wright"],
    "Meramec River": ["Missouri"],
    "Frank Wright": ["Wisconsin"],
    "Wisconsin": [],
    "Museum": ["Kraus House"],
}


@pytest.fixture
def links(web):
    """Links from passages, as (seed, kind, passage, name) by the passages' names."""
    store, keys = web(PASSAGES)
    names = {key: name for name, key in keys.items()}

    def of(*seeds: str):
        found = links_from(Neighbourhood(store.graph), [keys[seed] for seed in seeds], SETTINGS)
        return {(names[link.seed], link.kind, names[link.chunk], link.name) for link in found}

    return of


def test_links_lead_forward_to_what_is_mentioned_and_sideways_to_what_mentions_it_too(links):
    assert links("Kraus House") == {
        ("Kraus House", "forward", "Frank Wright", "Frank Wright"),
        ("Kraus House", "shared", "Meramec River", "Missouri"),
        ("Kraus House", "back", "Museum", "Kraus House"),
    }
    assert links("Wisconsin") == {("Wisconsin", "back", "Frank Wright", "Wisconsin")}


def test_a_name_that_many_mention_connects_none_of_them(web):
    passages = {f"p{n}": ["Everywhere"] for n in range(SETTINGS.rare + 1)}
    store, keys = web(passages)
    assert links_from(Neighbourhood(store.graph), [keys["p0"]], SETTINGS) == []
    store, keys = web(dict(list(passages.items())[: SETTINGS.rare]))
    found = links_from(Neighbourhood(store.graph), [keys["p0"]], SETTINGS)
    assert {link.chunk for link in found} == {key for name, key in keys.items() if name != "p0"}
    assert {link.kind for link in found} == {"shared"}


@pytest.mark.parametrize(("confidence", "share"), [(1.0, 1.0), (0.5, 1.0), (0.3, 0.6)])
def test_only_an_unsure_mention_makes_a_forward_link_weigh_less(web, confidence, share):
    store, keys = web(PASSAGES)
    with store.database.write() as db:
        db.execute("UPDATE mentions SET confidence = ?", (confidence,))
    found = links_from(Neighbourhood(store.graph), [keys["Kraus House"]], SETTINGS)
    assert [link.weight for link in found if link.kind == "forward"] == [pytest.approx(share)]


@pytest.mark.parametrize(("is_one_page", "weight"), [(True, 1 / 4), (False, 3**-0.5)])
def test_no_passage_of_a_long_page_is_what_a_name_means(web, is_one_page, weight):
    store, keys = web({"Seed": ["Frank Wright"], "Frank Wright": [], "a": [], "b": []})
    (about,) = store.graph.abouts_in([keys["Frank Wright"]])
    with store.database.write() as db:
        for name in ("a", "b"):
            db.execute("INSERT INTO abouts VALUES (?, ?, 'title', ?, 1.0)", (keys[name], about.entity, name))
            if is_one_page:
                db.execute("UPDATE chunks SET document = ? WHERE key = ?", (about.document, keys[name]))
    found = links_from(Neighbourhood(store.graph), [keys["Seed"]], SETTINGS)
    assert [link.weight for link in found if link.kind == "forward"] == [pytest.approx(weight)] * 3


def test_of_very_many_links_those_are_followed_that_may_give_most(web):
    mentioned = [f"Place{n}" for n in range(20)]
    store, keys = web({"Seed": mentioned, **dict.fromkeys(mentioned, ())})
    few = LinkSettings(most=5, hops=1)
    with store.database.write() as db:
        db.execute(
            "UPDATE abouts SET confidence = 0.9 WHERE chunk NOT IN (?, ?)", (keys["Seed"], keys["Place7"])
        )
    _, found, names = expanded(store, keys, "seed", {"Seed": 1.0}, settings=few)
    assert len(found.gained) == few.most
    assert "Place7" in {names[key] for key in found.gained}


def expanded(store, keys, question: str, scores: dict[str, float], **options):
    words = MemoryLexicalIndex()
    words.add((key, analyse(row.text)) for key, row in store.documents.chunks(list(keys.values())).items())
    words.commit()
    found = expand(
        PreparedQuestion.of(question, among=options.pop("among", None)),
        {keys[name]: score for name, score in scores.items()},
        channels=Channels(words, None),
        neighbourhood=Neighbourhood(store.graph),
        weight=2.0,
        **options,
    )
    names = {key: name for name, key in keys.items()}
    return {names[key]: score for key, score in found.scores.items()}, found, names


def test_a_target_never_ranks_above_its_seed_and_a_sideways_one_well_below(web):
    store, keys = web(PASSAGES)
    scores, found, names = expanded(store, keys, "Kraus House: Wright, Meramec, museum", {"Kraus House": 1.0})
    assert scores["Kraus House"] == 1.0
    assert 0 < scores["Frank Wright"] <= SETTINGS.cap
    assert 0 < scores["Meramec River"] <= SETTINGS.shared_cap
    assert {names[key] for key in found.gained} == {"Frank Wright", "Meramec River", "Museum", "Wisconsin"}


def test_the_second_hop_goes_on_from_what_the_first_found(web):
    store, keys = web(PASSAGES)
    scores, found, names = expanded(store, keys, "Kraus House", {"Kraus House": 1.0})
    link = found.links[keys["Wisconsin"]]
    assert (names[link.seed], link.kind) == ("Frank Wright", "forward")
    assert scores["Wisconsin"] < scores["Frank Wright"]
    one_hop, _, _ = expanded(store, keys, "Kraus House", {"Kraus House": 1.0}, settings=LinkSettings(hops=1))
    assert "Wisconsin" not in one_hop


def test_what_the_question_still_asks_decides_between_targets(web):
    store, keys = web({"Film": ["Anna Berg", "Carl Dorn"], "Anna Berg": [], "Carl Dorn": []})
    # "film" is answered by the seed; "Dorn" is what is left.
    scores, _, _ = expanded(store, keys, "Dorn of the film", {"Film": 1.0})
    assert scores["Carl Dorn"] > scores["Anna Berg"]


def test_links_count_as_far_as_the_question_has_the_title_or_names_the_subject(web):
    store, keys = web(PASSAGES)

    def gain(question: str, **options: Any) -> float:
        _, found, _ = expanded(store, keys, question, {"Kraus House": 1.0, "Museum": 0.1}, **options)
        return found.gained.get(keys["Frank Wright"], 0.0)

    whole = gain("Who built Kraus House?")
    assert 0 < gain("Who built the house?") < whole
    assert gain("Who built it?") == 0
    assert gain("Who built it?", named=[keys["Kraus House"]]) == whole
    with store.database.write() as db:
        db.execute("UPDATE abouts SET source = 'text'")
    assert gain("Who built it?") == whole, "without a title nothing is known"


def test_filters_hold_for_what_links_lead_to(web):
    store, keys = web(PASSAGES)
    allowed = frozenset({keys["Kraus House"], keys["Meramec River"]})
    scores, _, _ = expanded(store, keys, "Kraus House", {"Kraus House": 1.0}, among=allowed)
    assert scores.keys() == {"Kraus House", "Meramec River"}


NAMES = list(PASSAGES)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    scores=st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1), max_size=len(NAMES)),
    question=st.sampled_from(["", "Missouri", "Frank Wright's house", "?"]),
)
def test_nothing_sinks_and_nothing_rises_above_the_best(web, scores, question):
    store, keys = web(PASSAGES)
    after, _, _ = expanded(store, keys, question, scores)
    assert after.keys() >= scores.keys()
    assert all(after[name] >= score for name, score in scores.items())
    assert max(after.values(), default=0.0) == max(scores.values(), default=0.0)


NEIGHBOURS = {
    "Kraus House": ["Missouri", "Frank Wright"],
    "Meramec River": ["Missouri"],
    "Frank Wright": ["Wisconsin"],
    "Wisconsin": [],
    "静港": ["林若曦"],
    "林若曦": [],
}


def statements(store) -> list[str]:
    """The statements that are run from now on."""
    seen: list[str] = []
    with store.database.read() as db:
        db.set_trace_callback(seen.append)
    return seen


def test_the_entities_of_passages_are_those_mentioned_and_those_they_are_about(web):
    store, keys = web(NEIGHBOURS)
    ids = store.graph.find(["kraus house", "missouri", "frank wright", "静港", "林若曦", "wisconsin"])
    near = Neighbourhood(store.graph)
    some = [keys["Kraus House"]]
    assert near.entities_in(some) == {ids["kraus house"], ids["missouri"], ids["frank wright"]}
    near.mentions_in(some)
    assert near.entities_in([*some, keys["静港"]]) >= {ids["missouri"], ids["静港"], ids["林若曦"]}
    assert near.entities_in([]) == set()
    assert {about.entity for about in near.abouts_in(some)} == {ids["kraus house"]}


def test_what_was_read_is_not_read_again(web):
    store, keys = web(NEIGHBOURS)
    near = Neighbourhood(store.graph)

    def all_of_it():
        chunks = list(keys.values())
        entities = near.entities_in(chunks)
        return near.mentions_in(chunks), near.abouts_of(entities), near.mentions_of(entities)

    first = all_of_it()
    near.entities_in(keys.values())
    documents = dict(near.documents_of(keys.values()))
    seen = statements(store)
    assert all_of_it() == first
    assert near.documents_of(keys.values()) == documents
    assert not seen


@pytest.mark.parametrize("each", [1, 2, 3, 20])
def test_mentions_are_those_in_passages_about_something_else_each_passage_once(web, each):
    # A document that says its own name throughout, and three that mention it next to it.
    passages = {"Hub": ["Hub"] * 3, **{f"Passage{n}": ["Hub", "Hub"] for n in range(3)}}
    store, keys = web(passages)
    (hub,) = store.graph.find(["hub"]).values()
    near = Neighbourhood(store.graph, mentions_each=each, abouts_each=1)
    others = [keys[f"Passage{n}"] for n in range(3)]
    found = [chunk for chunk, _ in near.mentions_of([hub])[hub]]
    assert found == others[:each]
    assert near.abouts_of([hub])[hub] == [(keys["Hub"], 1.0)]


def test_what_does_not_exist_has_nothing_near_it(web):
    store, _ = web(NEIGHBOURS)
    near = Neighbourhood(store.graph)
    assert near.mentions_in([999]) == near.abouts_in([999]) == []
    assert near.mentions_of([999]) == near.abouts_of([999]) == {999: []}
    assert near.documents_of([999]) == {}


FILMS = {
    "Silent Harbour": ["Mara Lindqvist", "Otto Brandt"],
    "Mara Lindqvist": ["Visby"],
    "Visby": ["Gotland"],
    "Gotland": [],
    "Otto Brandt": [],
    "Pavel Horak": ["Brno"],
    "Brno": [],
    "静港": ["林若曦"],
    "林若曦": ["厦门"],
    "厦门": [],
}


@pytest.fixture
def ask(web):
    """The names of the passages that a question finds, with their weight, best first."""
    store, keys = web(FILMS)
    names = {key: name for name, key in keys.items()}

    def asked(text: str, *, among: frozenset[str] | None = None) -> dict[str, float]:
        allowed = None if among is None else frozenset(keys[name] for name in among)
        found = graph_channel(PreparedQuestion.of(text, among=allowed), store.graph)
        return {names[key]: found[key] for key in sorted(found, key=lambda key: -found[key])}

    return asked


def test_a_question_finds_what_it_names_and_one_step_further(ask):
    found = ask("Who directed Silent Harbour?")
    assert next(iter(found)) == "Silent Harbour"
    assert {"Mara Lindqvist", "Otto Brandt"} <= found.keys()
    assert found.keys().isdisjoint({"Pavel Horak", "Brno", "静港", "林若曦", "厦门"})
    assert found["Silent Harbour"] > found["Mara Lindqvist"]


def test_what_names_the_entity_is_found_as_well_as_what_is_about_it(ask):
    found = ask("What of Visby?")
    assert next(iter(found)) == "Visby"
    assert "Mara Lindqvist" in found


def test_a_chinese_question_goes_by_chinese_names(ask):
    found = ask("《静港》的导演是哪里人？")
    assert list(found)[:2] == ["静港", "林若曦"]
    assert found.keys() <= {"静港", "林若曦", "厦门"}


def test_what_several_named_entities_are_connected_with_comes_before_what_one_is(web):
    store, keys = web({"Anna": ["Both", "One"], "Berta": ["Both"], "Both": [], "One": []})
    found = graph_channel(PreparedQuestion.of("Anna and Berta"), store.graph)
    assert found[keys["Both"]] > found[keys["One"]]


def test_filters_hold(ask):
    whole = ask("Who directed Silent Harbour?")
    some = ask("Who directed Silent Harbour?", among=frozenset({"Mara Lindqvist", "厦门"}))
    assert some == {"Mara Lindqvist": whole["Mara Lindqvist"]}
    assert ask("Silent Harbour", among=frozenset()) == {}


@pytest.mark.parametrize("question", ["", "?", "the of", "Where is it?", "它在哪里？", "Unknown Place"])
def test_a_question_that_names_nothing_finds_nothing(ask, question):
    assert ask(question) == {}


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(names=st.lists(st.sampled_from(list(FILMS)), min_size=1, max_size=4))
def test_weights_lie_above_0_and_up_to_1(ask, names):
    found = ask(" ".join(names))
    assert set(names) <= found.keys() <= FILMS.keys()
    assert max(found.values()) == 1
    assert all(0 < weight <= 1 for weight in found.values())


# -- the walk itself --------------------------------------------------------------------------------


def test_a_walk_from_nowhere_leads_nowhere(web):
    store, keys = web(FILMS)
    assert walk(Neighbourhood(store.graph), {}) == {}
    assert walk(Neighbourhood(store.graph), {}, entities=[999]) == {}
    assert walk(Neighbourhood(store.graph), {999: 1.0}) == {}
    assert walk(Neighbourhood(store.graph), {keys["Brno"]: 0.0}) == {}


def test_a_walk_from_passages_and_entities_is_near_both(web):
    store, keys = web(FILMS)
    (entity,) = store.graph.find(["brno"]).values()
    found = walk(Neighbourhood(store.graph), {keys["静港"]: 1.0}, entities=[entity])
    assert {keys[name] for name in ("静港", "林若曦", "Brno", "Pavel Horak")} <= found.keys()
    assert keys["Gotland"] not in found
    alone = walk(Neighbourhood(store.graph), {keys["静港"]: 1.0})
    assert keys["Brno"] not in alone


def test_a_name_that_stands_everywhere_costs_no_more_than_any_other(web):
    store, keys = web({"Hub": [], **{f"Passage{n}": ["Hub"] for n in range(60)}})
    few = WalkSettings(mentions_each=5, targets_each=5)
    found = graph_channel(PreparedQuestion.of("Hub"), store.graph, settings=few)
    assert len(found) <= 1 + 5 + 5
    assert max(found, key=lambda key: found[key]) == keys["Hub"]


NAMED = (
    "York",
    "New York City",
    "The Silent Harbour",
    "Mara Lindqvist",
    "厦门",
    "厦门大学",
    "林若曦",
    "港",
    "HTTPClient",
    "the",
    "什么",
    "WHO",
    "--force-with-lease",
    "-f",
    "-F",
    ".git",
    "Git",
    "lease",
)


@pytest.fixture
def named(web):
    """Names of the entities that a question names."""
    store, keys = web(dict.fromkeys(NAMED, ()))
    of = {about.entity: name for name in NAMED for about in store.graph.abouts_in([keys[name]])}
    return lambda question: [of[entity.key] for entity in link_entities(question, store.graph)]


@pytest.mark.parametrize(
    ("question", "names"),
    [
        ("Who lives in New York City?", ["New York City"]),
        ("What does the WHO say of York?", ["WHO", "York"]),
        ("世卫组织 WHO 在厦门吗？", ["WHO", "厦门"]),
        ("WHO LIVES IN YORK?", ["York"]),
        ("Is York older than New York City?", ["York", "New York City"]),
        ("Who made the silent harbour's music?", ["The Silent Harbour"]),
        ("Did MARA LINDQVIST visit York or York?", ["Mara Lindqvist", "York"]),
        ("厦门大学在厦门吗？", ["厦门大学", "厦门"]),
        ("林若曦生于哪里？", ["林若曦"]),
        ("Is 林若曦 from York?", ["林若曦", "York"]),
        ("ＹＯＲＫ", ["York"]),
        ("How is `HTTPClient` used?", ["HTTPClient"]),
        ("Is `--force-with-lease` in Git safer than -f?", ["--force-with-lease", "Git", "-f"]),
        ("What is -F, and what is in .git?", ["-F", ".git"]),
        ("Is git-F a lease?", ["Git", "lease"]),
    ],
)
def test_the_longest_names_count_in_the_order_of_the_question(named, question, names):
    assert named(question) == names


@pytest.mark.parametrize(
    "question", ["", "?", "the of", "什么", "港在哪里", "Yorkshire", "where is it", "🙂"]
)
def test_stop_words_single_characters_and_parts_of_words_name_nothing(named, question):
    assert named(question) == []


@pytest.mark.parametrize(
    ("question", "sure"),
    [
        ("Where is York?", [True]),
        ("where is york?", [False]),
        ("who made the silent harbour", [True]),
        ("厦门在哪里", [True]),
    ],
)
def test_a_single_word_written_like_any_other_is_not_surely_a_name(web, question, sure):
    store, _ = web(dict.fromkeys(NAMED, ()))
    assert [entity.sure for entity in link_entities(question, store.graph)] == sure


def test_of_a_very_long_question_only_the_beginning_is_looked_at(named):
    assert named("York " + "word " * 100_000 + "厦门") == ["York"]


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(words=st.lists(st.sampled_from([*NAMED, "in", "与", "x", "?"]), max_size=12))
def test_nothing_is_named_that_is_not_there_and_nothing_twice(named, words):
    question = " ".join(words)
    found = named(question)
    assert len(found) == len(set(found))
    assert all(name.removeprefix("The ").casefold() in question.casefold() for name in found)
