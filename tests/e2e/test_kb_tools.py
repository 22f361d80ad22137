"""Results of the tools of `loom-kb`, over raw JSON-RPC."""

from __future__ import annotations

import re

import pytest

DECISION = """# Decision 12

We chose Kùzu as the graph engine of the Harbour project. Kùzu was made at the University of Waterloo.

## Reasons

It runs inside the process and needs no server.
"""
PORT = """# 青岛港

青岛港位于山东省。李明是青岛港的港长。

## 历史

青岛港建于一八九二年。
"""


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    return tmp_path_factory.mktemp("root")


@pytest.fixture(scope="module")
def server(shared_kb, root):
    """A server that knows two texts; tests that write use sources of their own."""
    with shared_kb("--root", root) as server:
        for text, title, source in [(DECISION, "Decision 12", "notes"), (PORT, "", "知识库")]:
            added = server.call("add", text=text, title=title, source=source, tags=["x", "港口"])
            id_ = added["structuredContent"]["job"]["id"]  # a busy machine answers before it is in
            (job,) = server.call("job", id=id_, action="wait")["structuredContent"]["jobs"]
            assert job["state"] == "done"
        yield server


def text_of(result):
    assert not result.get("isError"), result
    (content,) = result["content"]
    return content["text"]


def add(server, source, *texts):
    documents = []
    for text in texts:
        documents += server.call("add", text=text, source=source)["structuredContent"]["documents"]
    return documents


def add_files(server, root, source, *texts, name="{}"):
    (root / source).mkdir()
    for i, text in enumerate(texts):
        (root / source / f"{name.format(i)}.md").write_text(text, encoding="utf-8")
    job = server.call("add", paths=[source], source=source)["structuredContent"]["job"]
    job = server.call("job", id=job["id"], action="wait")["structuredContent"]["jobs"][0]
    assert job["counts"] == {"added": len(texts)}


# -- query -----------------------------------------------------------------------------------------


def test_a_question_is_answered_with_a_numbered_citation(server):
    answer = server.call(
        "query", query="Which graph engine did we choose?", source="notes", response_format="detailed"
    )
    assert re.match(r"\[1\] Decision 12( › .+)? \(text:[0-9a-f]{16}#\d+-\d+\) id=", text_of(answer))
    passage = answer["structuredContent"]["passages"][0]
    assert "Kùzu" in passage["text"]
    assert DECISION[passage["start"] : passage["end"]] == passage["text"]


def test_a_chinese_question_finds_the_chinese_passage_among_all_sources(server):
    answer = server.call("query", query="青岛港的港长是谁？", response_format="detailed")
    first = answer["structuredContent"]["passages"][0]
    assert first["source"] == "知识库"
    assert first["title"] == "青岛港"
    assert "李明" in first["text"]
    assert text_of(answer).startswith("[1] 青岛港")


def test_concise_answers_have_no_scores_and_detailed_ones_do(server):
    asked = {"query": "Why was Kùzu chosen?", "source": "notes"}
    concise = server.call("query", **asked)
    detailed = server.call("query", **asked, response_format="detailed")
    assert "relevance" not in text_of(concise)
    assert re.search(r"\nsource notes; relevance [01]\.\d\d; .*bm25 [\d.]+", text_of(detailed))
    assert "\nwhy: " in text_of(detailed)
    for short, whole in zip(
        concise["structuredContent"]["passages"], detailed["structuredContent"]["passages"], strict=True
    ):
        assert short.keys() <= {"id", "title", "heading_path", "uri", "page", "text"}
        assert short.items() <= whole.items()
        assert whole.keys() >= {
            "number",
            "source",
            "document_id",
            "start",
            "end",
            "relevance",
            "scores",
            "why",
        }


def test_a_small_budget_is_kept_and_says_what_is_missing(server, root):
    texts = (f"# Ship {i}\n\n" + f"Ship {i} carries salt and grain. " * 20 for i in range(6))
    add_files(server, root, "long", *texts)
    whole = server.call("query", query="Which ship carries salt?", source="long", limit=6)
    assert len(whole["structuredContent"]["passages"]) == 6
    cut = server.call("query", query="Which ship carries salt?", source="long", limit=6, max_tokens=500)
    shown = len(cut["structuredContent"]["passages"])
    assert 1 <= shown < 6
    assert f"[truncated: {shown} of 6 shown; narrow with" in text_of(cut)
    assert re.findall(r"^\[(\d)\] ", text_of(cut), re.MULTILINE) == [str(i + 1) for i in range(shown)]
    assert len(text_of(cut)) <= 500 * 4


def test_the_first_passage_is_cut_rather_than_left_out(server):
    add(server, "wide", "# 船\n\n" + "船只运送盐和谷物到港口，" * 60)
    cut = server.call("query", query="船只运送什么？", source="wide", max_tokens=200)
    assert "[truncated: 1 of 1 shown, the first in part;" in text_of(cut)


def test_filters_narrow_the_answer(server):
    add(server, "filtered", "# Red boat\n\nThe boat is red.")
    server.call("add", text="# Blue boat\n\nThe boat is blue.", source="filtered", tags=["draft", "草稿"])
    for wanted in ("draft", ["草稿"], ["draft", "nothing"]):
        answer = server.call("query", query="boat", source="filtered", filters={"tags": wanted})
        assert [p["title"] for p in answer["structuredContent"]["passages"]] == ["Blue boat"]
    nothing = server.call("query", query="boat", source="filtered", filters={"tags": "final"})
    assert text_of(nothing).startswith("Nothing was found.")
    assert nothing["structuredContent"]["passages"] == []


def test_a_source_that_cannot_be_asked_is_named_next_to_the_answers_of_the_others(server):
    add(server, "untagged", "# Mast\n\nA mast carries sails.")
    answer = server.call(
        "query", query="What did we decide?", filters={"tags": "x"}, response_format="detailed"
    )
    passages = answer["structuredContent"]["passages"]
    assert {passage["source"] for passage in passages} <= {"notes", "知识库"}
    assert "untagged: There is no filter 'tags'" in text_of(answer)


def test_arguments_in_json_strings_and_numbers_in_strings_are_understood(server):
    answer = server.call("query", query="boat", limit="1", filters='{"title": "Decision 12"}', source="notes")
    assert len(answer["structuredContent"]["passages"]) == 1


def test_null_is_an_argument_left_out(server):
    optional = ("source", "filters", "limit", "response_format", "max_tokens")
    answer = server.call("query", query="boat", **dict.fromkeys(optional))
    assert answer["structuredContent"]["passages"]
    refused = server.call("query", query=None, limit=None)
    assert "`query` is required" in refused["content"][0]["text"]


def test_a_link_between_documents_is_followed_and_told(server, root):
    add_files(
        server,
        root,
        "linked",
        "# Aster\n\nThe ship Aster belongs to the Veld Company.",
        "# Veld Company\n\nIt was founded by Ada Lind.",
        *(f"# Shed {i}\n\nShed {i} stores rope and tar." for i in range(12)),
    )
    answer = server.call("query", query="Who founded the owner of the ship Aster?", source="linked")
    titles = [p["title"] for p in answer["structuredContent"]["passages"][:3]]
    assert {"Aster", "Veld Company"} <= set(titles)
    assert "mentions “Veld Company”, which this passage is about" in text_of(answer)


# -- fetch -----------------------------------------------------------------------------------------


def test_a_document_is_read_by_its_id_by_its_address_and_by_a_passage_of_it(server):
    found = server.call("query", query="Kùzu", source="notes", response_format="detailed")
    passage = found["structuredContent"]["passages"][0]
    for id_ in (passage["document_id"], passage["uri"], passage["id"]):
        read = server.call("fetch", id=id_)
        assert read["structuredContent"]["text"] == DECISION
        assert text_of(read).startswith(f"Decision 12 ({passage['uri']}), characters 0 to ")
        assert text_of(read).endswith(f"<passage>\n{DECISION}\n</passage>")


def test_an_address_copied_from_a_citation_leads_to_its_document(server, root):
    add_files(server, root, "copied", "# 港口 100%\n\n防波堤建于冬天。", name="笔记 {} 50%")
    cited = re.search(
        r"\((file://.+?#\d+-\d+)\)", text_of(server.call("query", query="防波堤", source="copied"))
    )
    assert "笔记 0 50%.md#" in cited[1]
    for address in (cited[1], cited[1].partition("#")[0]):
        assert server.call("fetch", id=address)["structuredContent"]["title"] == "港口 100%"
    removed = server.call("remove", ids=[cited[1].partition("#")[0], "file:///nothing"])
    assert len(removed["structuredContent"]["removed"]) == 1
    assert removed["structuredContent"]["unknown"] == ["file:///nothing"]


def test_a_long_document_is_read_page_by_page(server):
    text = "# 航海日志\n\n" + "".join(f"第{i}天，风从东边来，船向南走。\n\n" for i in range(200))
    (document,) = add(server, "log", text)
    read, start, pages = "", 0, 0
    while start is not None:
        page = server.call("fetch", id=document["id"], start=start, max_tokens=200)
        content = page["structuredContent"]
        assert content["start"] == start
        read += content["text"]
        more = re.search(r"\[truncated: .* go on with start=(\d+)\]$", text_of(page))
        start = int(more[1]) if more else None
        pages += 1
    assert read == text
    assert pages > 3


def test_a_page_keeps_its_token_limit_whatever_the_script(server):
    (document,) = add(server, "budget", "港口的故事。" * 1000)
    page = server.call("fetch", id=document["id"], max_tokens=500)
    # One token for each Chinese character is what the limit counts.
    assert len(page["structuredContent"]["text"]) <= 500


def test_a_passage_is_shown_amid_what_is_around_it(server):
    text = "".join(f"# Part {i}\n\nThis is the text of part number {i}. " + "More. " * 100 for i in range(30))
    (document,) = add(server, "parts", text)
    found = server.call(
        "query", query="text of part number 17", source="parts", limit=1, response_format="detailed"
    )
    passage = found["structuredContent"]["passages"][0]
    read = server.call("fetch", id=passage["id"], max_tokens=600)["structuredContent"]
    assert read["document_id"] == document["id"]
    assert 0 < read["start"] < passage["start"]
    assert passage["end"] < read["end"] < read["length"]


def test_reading_from_beyond_the_end_gives_nothing_and_no_error(server):
    (document,) = add(server, "short", "Short.")
    read = server.call("fetch", id=document["id"], start=10**30)
    assert read["structuredContent"]["text"] == ""


# -- add, remove, sources, job ---------------------------------------------------------------------


def test_the_same_text_is_unchanged_and_the_same_address_is_replaced(server):
    once = server.call("add", text="# Rope\n\nHemp.", source="replaced", uri="note:rope")
    again = server.call("add", text="# Rope\n\nHemp.", source="replaced", uri="note:rope")
    changed = server.call("add", text="# Rope\n\nNylon.", source="replaced", uri="note:rope")
    counts = [result["structuredContent"]["job"]["counts"] for result in (once, again, changed)]
    assert counts == [{"added": 1}, {"unchanged": 1}, {"updated": 1}]
    assert server.call("fetch", id="note:rope", source="replaced")["structuredContent"]["text"].endswith(
        "Nylon."
    )
    listed = server.call("sources", source="replaced")["structuredContent"]["documents"]
    assert [document["uri"] for document in listed] == ["note:rope"]


def test_a_removed_document_is_not_found_any_more(server):
    kept, gone = add(server, "removing", "# Kept\n\nAnchors are iron.", "# Gone\n\nAnchors are wood.")
    removed = server.call("remove", ids=[gone["id"], "nothing"], source="removing")
    assert text_of(removed).splitlines()[0] == "Removed 1 of 2 documents."
    assert removed["structuredContent"]["unknown"] == ["nothing"]
    assert [d["id"] for d in removed["structuredContent"]["removed"]] == [gone["id"]]
    found = server.call("query", query="What are anchors made of?", source="removing")
    assert {p["uri"] for p in found["structuredContent"]["passages"]} == {kept["uri"]}
    assert server.call("fetch", id=gone["id"])["isError"] is True


def test_a_document_is_removed_by_its_address(server):
    server.call("add", text="# Tar", source="by-address", uri="note:tar")
    removed = server.call("remove", ids=["note:tar"])
    assert [d["uri"] for d in removed["structuredContent"]["removed"]] == ["note:tar"]


def test_sources_lists_what_there_is_and_how_it_can_be_filtered(server):
    listed = server.call("sources")
    by_name = {source["name"]: source for source in listed["structuredContent"]["sources"]}
    assert by_name["notes"]["documents"] == 1
    assert {"path", "tags", "title", "language"} <= set(by_name["知识库"]["filters"])
    assert "- 知识库: " in text_of(listed)


def test_an_overview_has_topics_with_terms_documents_and_sentences(server):
    add(
        server,
        "lamps",
        "# Lamps\n\nThe lighthouse keeper Ada Brown cleans the Fresnel lens of Cape Roca every evening.",
        "# Lenses\n\nA Fresnel lens was built for Cape Roca. Ada Brown has looked after it for ten years.",
        "# Keepers\n\nAda Brown was the first keeper of Cape Roca. She polished the Fresnel lens.",
    )
    overview = server.call("sources", source="lamps", overview=True)
    (topic, *_) = overview["structuredContent"]["overview"]["topics"]
    assert overview["structuredContent"]["overview"]["documents"] == 3
    assert topic["passages"] == 3
    assert "Fresnel lens" in topic["terms"] or "Cape Roca" in topic["terms"]
    (excerpt, *_) = topic["excerpts"]
    assert f"“{excerpt['text']}” [{excerpt['passage_id']}]" in text_of(overview)
    assert excerpt["text"] in server.call("fetch", id=excerpt["passage_id"])["structuredContent"]["text"]
    several = server.call("sources", overview=True)
    assert several["isError"]
    assert "several knowledge bases" in several["content"][0]["text"]


def test_a_question_about_all_documents_gets_their_topics(server):
    answer = server.call("query", query="这些文档主要讲什么？", source="知识库")
    assert "青岛港" in text_of(answer)
    assert answer["structuredContent"]["match"]["verdict"] == "strong"
    assert "question is about all" in answer["structuredContent"]["notes"][0]


def test_documents_are_listed_page_by_page_each_once(server, root):
    add_files(server, root, "paged", *(f"# Number {i}" for i in range(7)))
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        page = server.call("sources", source="paged", limit=3, **({"cursor": cursor} if cursor else {}))
        seen += page["structuredContent"]["documents"]
        cursor = page["structuredContent"].get("next_cursor")
        assert (f'[more: cursor="{cursor}"]' in text_of(page)) == (cursor is not None)
        pages += 1
    assert pages == 3
    assert sorted(d["title"] for d in seen) == [f"Number {i}" for i in range(7)]


def test_a_page_too_long_for_one_answer_goes_on_where_its_text_ends(server, root):
    texts = (f"# {i} {'地' * 150}\n\n文" for i in range(90))
    add_files(server, root, "wordy", *texts, name="{:03}" + "图" * 80)
    seen, cursor, pages = [], None, 0
    while pages == 0 or cursor:
        page = server.call("sources", source="wordy", limit=200, **({"cursor": cursor} if cursor else {}))
        documents = page["structuredContent"]["documents"]
        assert text_of(page).count("\n- ") + text_of(page).startswith("- ") == len(documents)
        seen += documents
        cursor = page["structuredContent"].get("next_cursor")
        pages += 1
    assert len({d["id"] for d in seen}) == len(seen) == 90
    assert pages > 1


def test_jobs_are_listed_newest_first_and_told_by_id(server):
    added = server.call("add", text="# Buoy", source="jobs")["structuredContent"]["job"]
    newest = server.call("job")["structuredContent"]["jobs"][0]
    by_id = server.call("job", id=added["id"])["structuredContent"]["jobs"][0]
    for job in (added, newest, by_id):
        job.pop("embedded", None)  # which goes on behind it
    assert newest == added == by_id
    waited = server.call("job", id=added["id"], action="wait")
    told = f"{added['id']} in jobs: done, 1 of 1 documents (1 added), 1 passages, read in "
    assert text_of(waited).startswith(told)


def test_cancelling_a_finished_job_changes_nothing(server):
    job = server.call("add", text="# Keel", source="finished")["structuredContent"]["job"]
    assert server.call("job_cancel", id=job["id"])["structuredContent"] == {"id": job["id"], "state": "done"}
    cancelled = server.call("job", id=job["id"])["structuredContent"]["jobs"]
    for each in (job, *cancelled):
        each.pop("embedded")  # which goes on behind it
    assert cancelled == [job]


# -- graph -----------------------------------------------------------------------------------------


def test_an_entity_is_shown_with_what_it_is_connected_with_and_the_evidence(server):
    shown = server.call("graph", entity="kùzu", source="notes")
    content = shown["structuredContent"]
    assert content["entity"] == "Kùzu"
    waterloo = next(r for r in content["relations"] if r["object"] == "University of Waterloo")
    assert waterloo["evidence"] == "Kùzu was made at the University of Waterloo."
    assert "Kùzu" in server.call("fetch", id=waterloo["passage_id"])["structuredContent"]["text"]
    assert "Kùzu is connected with: " in text_of(shown)


def test_a_chinese_entity_is_shown_with_its_relations(server):
    content = server.call("graph", entity="青岛港", source="知识库")["structuredContent"]
    assert ("青岛港", "located in", "山东省") in {
        (r["subject"], r["predicate"], r["object"]) for r in content["relations"]
    }
    assert "李明" in {entity["name"] for entity in content["entities"]}


def test_a_path_between_two_entities_is_told_with_its_relations(server):
    add(
        server,
        "engines",
        "Ada Lovelace met Charles Babbage.",
        "Charles Babbage designed the Analytical Engine.",
    )
    shown = server.call("graph", entity="Ada Lovelace", to="Analytical Engine", source="engines")
    assert shown["structuredContent"]["path"] == ["Ada Lovelace", "Charles Babbage", "Analytical Engine"]
    assert text_of(shown).startswith("Path: Ada Lovelace → Charles Babbage → Analytical Engine\n- ")
    assert len(shown["structuredContent"]["relations"]) == 2


def test_entities_without_a_path_are_told_so_with_advice(server):
    add(server, "apart", "Ada Lind met Tom Reed.", "Maria Voss met John Hale.")
    refused = server.call("graph", entity="Ada Lind", to="John Hale", source="apart")
    assert refused["isError"] is True
    assert "No path of up to 4 relations" in refused["content"][0]["text"]
    assert "`query`" in refused["content"][0]["text"]


# -- resources -------------------------------------------------------------------------------------


def test_documents_are_resources_listed_over_all_sources_and_readable(server):
    seen, cursor = [], None
    while not seen or cursor:
        page = server.request("resources/list", {"cursor": cursor} if cursor else {})
        seen += page["resources"]
        cursor = page.get("nextCursor")
    uris = {resource["uri"]: resource for resource in seen}
    assert len(uris) == len(seen)
    (port,) = [resource for resource in seen if resource.get("title") == "青岛港"]
    assert port["uri"].startswith("loom://%E7%9F%A5%E8%AF%86%E5%BA%93/")
    (content,) = server.request("resources/read", {"uri": port["uri"]})["contents"]
    assert content["text"] == PORT
