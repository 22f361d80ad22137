"""The default settings, with the multilingual model: questions in other words, English and Chinese."""

from __future__ import annotations

import pytest

from loom_core.embedding.registry import create_embedder

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("e5-small" not in create_embedder("auto").id, reason="this platform has no e5-small"),
]

NOTES = {
    "mooring.md": "# Mooring fees\n\nVessels under ten metres pay nothing at our quay.",
    "pilots.md": "# Pilots\n\nA pilot boards every tanker before it enters the channel.",
    "lights.md": "# Lights\n\nThe lamp on the pier burns from dusk to dawn.",
    "供水.md": "# 供水\n\n每个码头都有淡水龙头，船员可以免费取用。",
    "天气.md": "# 天气\n\n台风来临时，所有渔船必须回港避风。",
    "修船.md": "# 修船\n\n船坞每年冬天关闭三个月，用来检修闸门。",
}

QUESTIONS = [
    ("Do small boats have to pay for berthing?", "mooring.md"),
    ("Who guides oil ships into port?", "pilots.md"),
    ("遇到强风暴怎么办？", "天气.md"),
    ("哪里可以取到饮用水？", "供水.md"),
    ("船坞什么时候不开放？", "修船.md"),
]


@pytest.fixture(scope="module")
def server(shared_kb, tmp_path_factory):
    folder = tmp_path_factory.mktemp("notes")
    for name, text in NOTES.items():
        (folder / name).write_text(text, encoding="utf-8")
    with shared_kb("--root", folder, embedder="auto") as server:
        job = server.call("add", paths=["."])["structuredContent"]["job"]
        server.call("job", id=job["id"], action="wait")
        yield server


def test_coverage_is_told_until_every_passage_has_a_vector(server, until):
    def covered():
        answer = server.call("query", query="harbour")
        content = answer["structuredContent"]
        complete = "total" not in content
        assert complete or content["total"] == len(NOTES)
        assert ("passages have vectors so far" in answer["content"][0]["text"]) != complete
        return complete

    assert until(covered, what="that every passage has a vector")


@pytest.mark.parametrize(("question", "name"), QUESTIONS)
def test_a_question_in_other_words_finds_the_passage(question, name, server, until):
    def embedded():
        return "total" not in server.call("query", query="x")["structuredContent"]

    assert until(embedded, what="that every passage has a vector")
    titles = {name: text.splitlines()[0].removeprefix("# ") for name, text in NOTES.items()}
    found = server.call("query", query=question)["structuredContent"]["passages"]
    assert found[0]["title"] == titles[name], [passage["title"] for passage in found]
