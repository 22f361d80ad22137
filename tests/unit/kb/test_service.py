from __future__ import annotations

import anyio
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st
from loom_kb.job_facts import all_problems, job_info
from loom_kb.service import position

from loom_core.errors import InvalidInputError, NotFoundError, SourceError
from loom_core.server.protocol.results import estimate_tokens


async def add(service, *texts, source=None, **metadata):
    """Adds texts and works until nothing is left to do; gives the knowledge base and the job's id."""
    uris = [f"note:{i}" for i in range(len(texts))]
    request = service.request_texts(texts, uris=uris, metadata=metadata)
    (knowledge_base,), job = await service.add(request, source=source)
    await knowledge_base.worker.drain()
    return knowledge_base, job


# -- asking ----------------------------------------------------------------------------------------


async def test_what_answers_best_comes_first_whichever_source_it_is_in(service):
    await add(service, "# Rope\n\nRope is of hemp.", "# More rope\n\nRope is sold here.", source="shop")
    await add(service, "# 帆\n\n帆是用亚麻布做的。", source="知识库")
    result = await service.query("帆是用什么做的？rope?", limit=3)
    assert [p.number for p in result.passages] == [1, 2, 3]
    assert [p.source for p in result.passages] == ["知识库", "shop", "shop"]
    assert result.embedded == result.total == 3
    sold = await service.query("Where is rope sold?", limit=1)
    assert [(p.source, p.title) for p in sold.passages] == [("shop", "More rope")]


async def test_what_two_sources_have_comes_once_and_says_where_else_it_is(service):
    text = "# Harbour\n\nThe harbour was opened in 1901 and has been deepened twice since then."
    await add(service, text, source="notes")
    await add(service, text, source="旧笔记")
    (passage,) = (await service.query("When was the harbour opened?")).passages
    (copy,) = {"notes", "旧笔记"} - {passage.source}
    assert passage.why[-1] == f"{copy} has the same ({passage.id})"


async def test_one_source_that_cannot_answer_does_not_silence_the_others(service):
    await add(service, "# Rope\n\nRope is of hemp.", source="tagged", tags=["a"])
    await add(service, "# Sail\n\nSails are of linen.", source="plain")
    result = await service.query("rope", filters={"tags": "a"})
    assert [p.source for p in result.passages] == ["tagged"]
    assert result.notes[0] == "1 of 2 sources answered."
    assert result.notes[1].startswith("plain: There is no filter 'tags'")
    with pytest.raises(InvalidInputError) as refused:
        await service.query("rope", filters={"colour": "red"})
    assert refused.value.message.count("There is no filter 'colour'") == 2
    with pytest.raises(InvalidInputError, match="There is no filter 'tags'"):
        await service.query("rope", source="plain", filters={"tags": "a"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("question", "film", "person", "other"),
    [
        (
            "Which town did the director of The Silent Harbour grow up in?",
            "# The Silent Harbour\n\nThe Silent Harbour is a film directed by Mara Lindqvist.",
            "# Mara Lindqvist\n\nShe came to Visby as a child.",
            "# Tom Hale\n\nHe has never left Lübeck.",
        ),
        (
            "《静港》的导演小时候住在哪里？",
            "# 静港\n\n《静港》是一部电影，由林若曦执导。",
            "# 林若曦\n\n她来自厦门。",
            "# 陈远\n\n他来自成都。",
        ),
    ],
)
async def test_links_are_followed_from_one_knowledge_base_into_another(
    service, question, film, person, other
):
    await add(service, film, source="films")
    await add(service, person, other, source="people")
    assert (await service.query(question, source="people", strategy="bm25")).passages == []
    passages = (await service.query(question, strategy="bm25")).passages
    assert [passage.source for passage in passages] == ["films", "people"]
    assert passages[1].text.endswith(person.split("\n")[-1])
    assert "(films) mentions" in passages[1].why[0]


async def test_a_knowledge_base_that_hangs_is_given_up_at_its_deadline(service, monkeypatch):
    knowledge_base, _ = await add(service, "# Rope\n\nRope is of hemp.", source="shop")

    async def hang(*_args: object, **_options: object) -> None:
        await anyio.sleep_forever()

    monkeypatch.setattr(knowledge_base, "search", hang)
    monkeypatch.setattr(service, "_deadline", 0.01)
    with pytest.raises(SourceError, match=r"shop: It did not answer within 0.01 s\."):
        await service.query("rope")


async def test_no_match_is_told_with_the_words_that_are_missing(service):
    for source in ("one", "two"):
        await add(service, f"# Rope {source}\n\nRope number {source} is of hemp.", source=source)
    for name in ("one", None):
        match = (await service.query("sourdough bread", source=name)).match
        assert match.missing == ["sourdough", "bread"]


async def test_the_only_knowledge_base_needs_no_name(service):
    with pytest.raises(NotFoundError, match="There is no knowledge base yet"):
        await service.one(None)
    await add(service, "Rope.", source="知识库")
    assert (await service.one(None)).name == "知识库"
    await add(service, "Sails.", source="notes")
    with pytest.raises(InvalidInputError, match="There are several knowledge bases"):
        await service.one(None)
    assert (await service.one("notes")).name == "notes"


# -- reading ---------------------------------------------------------------------------------------


async def test_a_stretch_keeps_its_token_limit_and_goes_on_where_it_ended(service):
    text = "港口 harbour 🚢 " * 500
    await add(service, text)
    start, read = 0, ""
    while start < len(text.strip()):
        found = await service.fetch("note:0", start=start, tokens=100)
        assert 90 <= estimate_tokens(found.text) <= 100 or found.end == found.length
        assert found.end == found.start + len(found.text)
        read, start = read + found.text, found.end
    assert read.strip() == text.strip()


async def test_a_passage_is_read_with_as_much_before_it_as_after_it(service):
    paragraphs = [f"# 第{i}章\n\n" + f"这是第{i}章的内容，讲的是港口。" * 10 for i in range(30)]
    await add(service, "\n\n".join(paragraphs))
    passage = (await service.query("第15章的内容", limit=1)).passages[0]
    read = await service.fetch(passage.id, tokens=2000)
    before, after = passage.start - read.start, read.end - passage.end
    assert before > 300
    assert abs(before - after) < 100
    tight = await service.fetch(passage.id, tokens=100)
    assert tight.start == passage.start, "a passage longer than the limit is read from its beginning"


async def test_offsets_outside_the_document_are_brought_inside(service):
    await add(service, "Rope.")
    assert (await service.fetch("note:0", start=10**20, tokens=100)).text == ""
    assert (await service.fetch("note:0", start=-5, tokens=100)).text == "Rope."
    with pytest.raises(NotFoundError, match="There is no document or passage 'note:1'"):
        await service.fetch("note:1", tokens=100)


# -- adding and removing ---------------------------------------------------------------------------


@pytest.mark.parametrize("texts", [[], [""], [" \n"], ["Rope.", " "]])
async def test_there_must_be_text_to_add(texts, service):
    with pytest.raises(InvalidInputError, match="There is no text to add"):
        service.request_texts(texts)
    assert service.library.list() == []


async def test_paths_must_be_given_and_exist(service, tmp_path):
    with pytest.raises(InvalidInputError, match="There is no path to add"):
        await service.request_files([])
    with pytest.raises(NotFoundError, match="There is no file or folder"):
        await service.request_files([tmp_path / "missing"])
    assert service.library.list() == []


async def test_relative_paths_are_meant_from_the_roots(service, tmp_path):
    root = tmp_path / "allowed"
    (root / "港口").mkdir()
    assert await service.check_paths(["港口", "."]) == [root / "港口", root]
    assert await service.check_paths([str(root / "港口" / "..")]) == [root]
    assert await service.check_paths(["missing.md"]) == [root / "missing.md"]


@pytest.mark.hostile("paths and links")
@pytest.mark.parametrize("path", ["..", "../allowed2", "/", "港口/../../x"])
async def test_paths_outside_the_roots_are_refused(path, service):
    with pytest.raises(InvalidInputError, match="is outside the folders"):
        await service.check_paths([path])


async def test_the_same_document_in_two_sources_is_removed_from_the_one_that_is_named(service):
    await add(service, "Rope.", source="a")
    await add(service, "Rope.", source="b")
    removed, unknown = await service.remove(["note:0", "note:1"], source="a")
    assert ([info.uri for info in removed], unknown) == (["note:0"], ["note:1"])
    assert [entry.documents for entry in service.library.list()] == [0, 1]


# -- jobs ------------------------------------------------------------------------------------------


async def test_what_failed_is_named_and_what_was_skipped_is_counted(service, tmp_path):
    folder = tmp_path / "allowed"
    for i in range(55):
        (folder / f"{i:02}.png").write_bytes(b"\x89PNG")
    (folder / "z.pdf").write_bytes(b"%PDF-1.7")
    (knowledge_base,), job = await service.add(await service.request_files([folder]), source=None)
    await knowledge_base.worker.drain()
    info = job_info(knowledge_base, knowledge_base.job(job))
    assert info.counts == {"failed": 1, "skipped": 55}
    assert info.problems[0].startswith("failed: ")
    assert len(info.problems) == 1
    assert [(each.count, each.types) for each in info.skipped] == [(55, {".png": 55})]
    whole = [*all_problems(knowledge_base.jobs, knowledge_base.job(job))]
    assert len(set(whole)) == 56
    assert whole[1].endswith("00.png: unsupported type")


async def test_a_job_that_failed_as_a_whole_says_so_first(service):
    (knowledge_base,), job = await service.add(service.request_texts(["x"]), source=None)
    knowledge_base.store.jobs.finish(knowledge_base.job(job), "failed", error="the disk is full")
    assert job_info(knowledge_base, knowledge_base.job(job)).problems == ["failed: the disk is full"]


async def test_jobs_of_all_sources_are_listed_newest_first(service):
    assert (await service.jobs()).jobs == []
    _, first = await add(service, "a", source="x")
    _, second = await add(service, "b", source="y")
    assert [info.id for info in (await service.jobs()).jobs] == [second, first]
    newest = await service.jobs(limit=1)
    assert [info.id for info in newest.jobs] == [second]
    older = await service.jobs(limit=1, cursor=newest.next_cursor)
    assert ([info.id for info in older.jobs], older.next_cursor) == ([first], None)
    assert (await service.job(first))[0][0].name == "x"


# -- cursors ---------------------------------------------------------------------------------------


def test_no_cursor_is_the_beginning():
    assert position(None) == position("") == 0


@given(st.integers(min_value=0, max_value=(1 << 63) - 1))
def test_a_cursor_is_a_key_of_the_record(key):
    assert position(str(key)) == key


@given(st.one_of(st.text(min_size=1), st.integers().map(str)))
@example(str(1 << 63))
@example("９")
def test_anything_else_is_no_cursor(cursor):
    assume(not (cursor.isascii() and cursor.isdigit() and int(cursor) < 1 << 63))
    with pytest.raises(InvalidInputError, match="is not a cursor"):
        position(cursor)
