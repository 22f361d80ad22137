"""Links: where they lead from the best passages, and how much what they lead to gains."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loom_core.knowledge.indexes.engines.memory_lexical import MemoryLexicalIndex
from loom_core.knowledge.retrieval.channels import Channels, Question
from loom_core.knowledge.retrieval.graph_expansion import LinkSettings, Neighbourhood, expand, links_from
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
    record, keys = web(PASSAGES)
    names = {key: name for name, key in keys.items()}

    def of(*seeds: str):
        found, _ = links_from(Neighbourhood(record.graph), [keys[seed] for seed in seeds], SETTINGS)
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
    record, keys = web(passages)
    assert links_from(Neighbourhood(record.graph), [keys["p0"]], SETTINGS)[0] == []
    record, keys = web(dict(list(passages.items())[: SETTINGS.rare]))
    found, _ = links_from(Neighbourhood(record.graph), [keys["p0"]], SETTINGS)
    assert {link.chunk for link in found} == {key for name, key in keys.items() if name != "p0"}
    assert {link.kind for link in found} == {"shared"}


@pytest.mark.parametrize(("confidence", "share"), [(1.0, 1.0), (0.5, 1.0), (0.3, 0.6)])
def test_only_an_unsure_mention_makes_a_forward_link_weigh_less(web, confidence, share):
    record, keys = web(PASSAGES)
    with record.database.write() as db:
        db.execute("UPDATE mentions SET confidence = ?", (confidence,))
    found, _ = links_from(Neighbourhood(record.graph), [keys["Kraus House"]], SETTINGS)
    assert [link.weight for link in found if link.kind == "forward"] == [pytest.approx(share)]


def test_of_very_many_links_those_are_followed_that_may_give_most(web):
    mentioned = [f"Place{n}" for n in range(20)]
    record, keys = web({"Seed": mentioned, **dict.fromkeys(mentioned, ())})
    few = LinkSettings(most=5, hops=1)
    with record.database.write() as db:
        db.execute(
            "UPDATE abouts SET confidence = 0.9 WHERE chunk NOT IN (?, ?)", (keys["Seed"], keys["Place7"])
        )
    _, found, names = expanded(record, keys, "x", {"Seed": 1.0}, settings=few)
    assert len(found.gained) == few.most
    assert "Place7" in {names[key] for key in found.gained}


def expanded(record, keys, question: str, scores: dict[str, float], **options):
    words = MemoryLexicalIndex()
    words.add((key, analyse(row.text)) for key, row in record.documents.chunks(list(keys.values())).items())
    words.commit()
    found = expand(
        Question.of(question, among=options.pop("among", None)),
        {keys[name]: score for name, score in scores.items()},
        channels=Channels(words, None),
        neighbourhood=Neighbourhood(record.graph),
        weight=2.0,
        **options,
    )
    names = {key: name for name, key in keys.items()}
    return {names[key]: score for key, score in found.scores.items()}, found, names


def test_a_target_never_ranks_above_its_seed_and_a_sideways_one_well_below(web):
    record, keys = web(PASSAGES)
    scores, found, names = expanded(record, keys, "Wright Meramec museum", {"Kraus House": 1.0})
    assert scores["Kraus House"] == 1.0
    assert 0 < scores["Frank Wright"] <= SETTINGS.cap
    assert 0 < scores["Meramec River"] <= SETTINGS.shared_cap
    assert {names[key] for key in found.gained} == {"Frank Wright", "Meramec River", "Museum", "Wisconsin"}


def test_the_second_hop_goes_on_from_what_the_first_found(web):
    record, keys = web(PASSAGES)
    scores, found, names = expanded(record, keys, "x", {"Kraus House": 1.0})
    link = found.links[keys["Wisconsin"]]
    assert (names[link.seed], link.kind) == ("Frank Wright", "forward")
    assert scores["Wisconsin"] < scores["Frank Wright"]
    one_hop, _, _ = expanded(record, keys, "x", {"Kraus House": 1.0}, settings=LinkSettings(hops=1))
    assert "Wisconsin" not in one_hop


def test_what_the_question_still_asks_decides_between_targets(web):
    record, keys = web({"Film": ["Anna Berg", "Carl Dorn"], "Anna Berg": [], "Carl Dorn": []})
    # "film" is answered by the seed; "Dorn" is what is left.
    scores, _, _ = expanded(record, keys, "Dorn of the film", {"Film": 1.0})
    assert scores["Carl Dorn"] > scores["Anna Berg"]


def test_filters_hold_for_what_links_lead_to(web):
    record, keys = web(PASSAGES)
    allowed = frozenset({keys["Kraus House"], keys["Meramec River"]})
    scores, _, _ = expanded(record, keys, "x", {"Kraus House": 1.0}, among=allowed)
    assert scores.keys() == {"Kraus House", "Meramec River"}


NAMES = list(PASSAGES)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(
    scores=st.dictionaries(st.sampled_from(NAMES), st.floats(0, 1), max_size=len(NAMES)),
    question=st.sampled_from(["", "Missouri", "Frank Wright's house", "?"]),
)
def test_nothing_sinks_and_nothing_rises_above_the_best(web, scores, question):
    record, keys = web(PASSAGES)
    after, _, _ = expanded(record, keys, question, scores)
    assert after.keys() >= scores.keys()
    assert all(after[name] >= score for name, score in scores.items())
    assert max(after.values(), default=0.0) == max(scores.values(), default=0.0)
