"""The four tools over the protocol, in memory: what they answer with sources that work, fail and hang."""

from __future__ import annotations

import json
import threading

import pytest
from loom_query.app import build
from loom_query.settings import Settings
from mcp import MCPError

from loom_core.errors import ConfigError


def text_of(result):
    return result.content[0].text


def mock(*answers):
    return {"provider": "mock", "options": {"responses": list(answers)}}


@pytest.fixture
def hanging(local_servers):
    """A knowledge service that takes the question and never answers; it lets go when the test ends."""
    server, over = local_servers(), threading.Event()
    server.routes["/search"] = lambda _asked, _connection: over.wait(30)
    yield {
        "kind": "http",
        "url": server.url("/search"),
        "allow": ["127.0.0.1"],
        "deadline": 0.5,
    }
    over.set()


@pytest.fixture
def dead(local_servers):
    """A knowledge service that answers with an error."""
    server = local_servers()
    url = server.answers("/search", b"{}", status=503)
    return {"kind": "http", "url": url, "allow": ["127.0.0.1"]}


async def test_passages_of_several_sources_come_in_one_order_and_can_be_read_on(
    configure, connected, harbour, ports
):
    configure({"harbour": harbour, "港口": ports})
    async with connected() as client:
        question = {"query": "Who is the harbour master of Port Aster?"}
        answer = await client.call_tool("query", {**question, "response_format": "detailed"})
        best = answer.structured_content["passages"][0]
        assert best["source"] == "harbour"
        assert "Ada Brown" in best["text"]
        assert best["id"].startswith("harbour:")
        assert "[1] Harbour book › Port Aster (https://harbour.example/aster#2-" in text_of(answer)
        assert f"id={best['id']}" in text_of(answer)
        states = {each["source"]: each["state"] for each in answer.structured_content["sources"]}
        assert states == {"harbour": "answered", "港口": "answered"}
        concise = (await client.call_tool("query", question)).structured_content
        assert concise["passages"][0].items() <= best.items()
        assert concise["passages"][0].keys() == {"id", "title", "heading_path", "uri", "text"}
        assert concise.keys() == {"passages", "match"}

        whole = await client.call_tool("fetch", {"id": best["id"], "max_tokens": 1000})
        assert "Boats pay nine crowns." in text_of(whole)
        assert whole.structured_content["uri"] == "https://harbour.example/aster"

        chinese = await client.call_tool("query", {"query": "青岛港的港长是谁？", "limit": 1})
        (found,) = chinese.structured_content["passages"]
        assert found["id"].startswith("港口:")
        assert found["uri"] == "https://港口.example/青岛"
        assert "https://港口.example/青岛" in text_of(chinese)


async def test_a_passage_is_a_resource_too(configure, connected, harbour):
    configure({"harbour": harbour})
    async with connected() as client:
        answer = await client.call_tool("query", {"query": "Who is the harbour master?", "limit": 1})
        source, _, inner = answer.structured_content["passages"][0]["id"].partition(":")
        read = await client.read_resource(f"loom://{source}/{inner}")
        assert read.contents[0].text.startswith("# Port Aster")
        with pytest.raises(MCPError, match="nothing with the id"):
            await client.read_resource(f"loom://{source}/nothing")


async def test_a_long_text_is_read_in_parts(configure, connected):
    long = "# 历史\n\n" + "".join(f"第{n}年，青岛港建了新码头。" for n in range(2000))
    configure({"史": {"kind": "documents", "documents": [{"text": long, "uri": "note:史"}]}})
    async with connected() as client:
        first = await client.call_tool("fetch", {"id": "史:note:史", "max_tokens": 500})
        end = first.structured_content["end"]
        assert f"go on with start={end}]" in text_of(first)
        second = await client.call_tool("fetch", {"id": "史:note:史", "start": end, "max_tokens": 500})
        assert (
            first.structured_content["text"] + second.structured_content["text"]
            == long[: second.structured_content["end"]]
        )


@pytest.mark.slow
async def test_a_dead_and_a_hanging_source_are_named_and_spoil_nothing(
    configure, connected, harbour, dead, hanging
):
    configure({"dead": dead, "slow": hanging, "harbour": harbour})
    async with connected() as client:
        answer = await client.call_tool("query", {"query": "Who is the harbour master?"})
        assert "Ada Brown" in text_of(answer)
        assert "(Note: 1 of 3 sources answered.)" in text_of(answer)
        outcomes = {each["source"]: each for each in answer.structured_content["sources"]}
        assert outcomes["slow"]["state"] == "late"
        assert "within 0.5 s" in outcomes["slow"]["problem"]
        assert outcomes["dead"]["state"] == "failed"
        assert "503" in outcomes["dead"]["problem"]
        no_one = await client.call_tool("query", {"query": "x", "source": "dead"})
        assert no_one.is_error
        assert "503" in text_of(no_one)


async def test_progress_tells_which_source_is_through(configure, connected, harbour, ports):
    configure({"harbour": harbour, "港口": ports})
    told = []

    async def progress(value, total, message):
        told.append((value, total, message))

    async with connected() as client:
        await client.call_tool("query", {"query": "ships"}, progress_callback=progress)
    assert told[-1][:2] == (2, 2)
    assert told[-1][2] in {"harbour answered", "港口 answered"}


async def test_sources_tells_state_filters_and_what_is_wrong(configure, connected, harbour):
    path = configure({"harbour": harbour, "bad": {"kind": "http", "url": "https://a.example", "limit": 3}})
    async with connected() as client:
        listed = await client.call_tool("sources", {})
        good, bad = listed.structured_content["sources"]
        assert (good["name"], good["kind"], good["state"], good["problem"]) == (
            "harbour",
            "documents",
            "ready",
            "",
        )
        assert bad["state"] == "failed"
        assert f"{path}:" in bad["problem"]
        assert "Did you mean limit_field?" in text_of(listed)
        answer = await client.call_tool("query", {"query": "ships"})
        assert "1 of 2 sources answered." in text_of(answer)
        refused = await client.call_tool("query", {"query": "ships", "source": "bad"})
        assert refused.is_error
        assert "limit is not known here" in text_of(refused)


async def test_an_unknown_source_or_id_is_refused_with_what_there_is(configure, connected, harbour, ports):
    configure({"harbour": harbour, "港口": ports})
    async with connected() as client:
        refused = await client.call_tool("query", {"query": "ships", "source": "harbor"})
        assert refused.is_error
        assert "Did you mean 'harbour'? There are: harbour, 港口." in text_of(refused)
        unknown = await client.call_tool("fetch", {"id": "harbour:nothing"})
        assert "There is nothing with the id 'harbour:nothing'." in text_of(unknown)
        empty = await client.call_tool("query", {"query": "  "})
        assert empty.is_error


async def test_without_any_source_it_is_said_how_to_get_one(connected):
    async with connected() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert "There is no source yet" in tools["query"].description
        answer = await client.call_tool("query", {"query": "x"})
        assert answer.is_error
        assert "loom-kb" in text_of(answer)
        assert "There is no source yet" in text_of(await client.call_tool("sources", {}))


async def test_descriptions_are_worded_from_the_sources(configure, connected, harbour, ports):
    configure({"harbour": harbour, "港口": ports})
    async with connected() as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert list(tools) == ["query", "fetch", "sources", "ask"]
        for name in ("query", "ask"):
            assert "- harbour: Notes about harbours. (for: harbours, ships)\n- 港口: 港口资料" in (
                tools[name].description
            )
            assert tools[name].input_schema["properties"]["source"]["enum"] == ["harbour", "港口"]


async def test_without_a_model_ask_says_so_and_returns_the_passages(configure, connected, harbour):
    path = configure({"harbour": harbour})
    async with connected() as client:
        answer = await client.call_tool("ask", {"query": "Who is the harbour master?"})
        assert not answer.is_error
        assert answer.structured_content["answered"] is False
        assert "There is no language model" in text_of(answer)
        assert f'"llm": "deepseek" (or another provider, see docs/models.md) into {path}' in text_of(answer)
        assert "Ada Brown" in text_of(answer)
        assert answer.structured_content["passages"][0]["id"].startswith("harbour:")


@pytest.mark.parametrize("pattern", ["rag", "multi_query", "hierarchical"])
async def test_an_answer_carries_its_citations_and_marks_what_nothing_supports(
    pattern, configure, connected, harbour, dead
):
    said = "The harbour master is Ada Brown [1]. She likes opera."
    variants = json.dumps({"queries": ["harbour master of Port Aster"]})
    configure(
        {"harbour": harbour, "dead": dead}, llm=mock(*([variants] if pattern == "multi_query" else []), said)
    )
    async with connected() as client:
        answer = await client.call_tool("ask", {"query": "Who is the harbour master?", "pattern": pattern})
        result = answer.structured_content
        assert result["answered"] is True
        assert result["answer"] == said
        assert [sentence["supported"] for sentence in result["sentences"]] == [True, False]
        # What it was written from is named in the answer; its text is there to be read.
        assert "text" not in result["passages"][0]
        read = await client.call_tool("fetch", {"id": result["passages"][0]["id"]})
        assert "Ada Brown" in text_of(read)
        assert "not supported by any passage: She likes opera." in text_of(answer)
        assert "1 of 2 sources answered." in result["notes"]
        assert {each["source"]: each["state"] for each in result["sources"]} == {"dead": "failed"}


async def test_a_chinese_answer_is_marked_sentence_by_sentence(configure, connected, ports):
    configure({"港口": ports}, llm=mock("青岛港的港长是李明[1]。他今年五十岁。"))
    async with connected() as client:
        answer = await client.call_tool("ask", {"query": "青岛港的港长是谁？"})
        assert [s["supported"] for s in answer.structured_content["sentences"]] == [True, False]
        assert "他今年五十岁。" in text_of(answer)


async def test_a_model_that_cannot_be_used_costs_only_the_answer(configure, connected, harbour):
    configure({"harbour": harbour}, llm={"provider": "no-such-vendor"})
    async with connected() as client:
        answer = await client.call_tool("ask", {"query": "Who is the harbour master?"})
        assert answer.structured_content["answered"] is False
        assert "no-such-vendor" in text_of(answer)
        assert "Ada Brown" in text_of(answer)


async def test_a_model_that_fails_costs_only_the_answer(configure, connected, harbour):
    configure({"harbour": harbour}, llm=mock(""))
    async with connected() as client:
        answer = await client.call_tool("ask", {"query": "Who is the harbour master?"})
        assert answer.structured_content["answered"] is False
        assert "gave no answer, so these are the passages: The language model's answer is empty" in text_of(
            answer
        )
        assert "Ada Brown" in text_of(answer)


@pytest.mark.slow
async def test_sources_says_what_went_wrong_when_one_was_asked_last(
    configure, connected, harbour, dead, hanging
):
    configure({"harbour": harbour, "dead": dead, "hanging": hanging})
    async with connected() as client:

        async def states():
            listed = (await client.call_tool("sources", {})).structured_content["sources"]
            return {each["name"]: (each["state"], each["problem"]) for each in listed}

        assert (await states())["dead"] == ("ready", ""), "nothing is known of it"
        await client.call_tool("query", {"query": "ships", "source": "harbour", "filters": {"nope": 1}})
        await client.call_tool("query", {"query": "ships"})
        now = await states()
        assert now["harbour"] == ("ready", ""), "it only refused a filter"
        assert now["dead"][0] == now["hanging"][0] == "failed"
        assert "503" in now["dead"][1]
        assert now["hanging"][1].startswith("Asked last: It did not answer within 0.5 s.")


async def test_a_source_with_names_for_its_documents_only_has_no_address_of_them(
    configure, connected, local_servers
):
    rows = [
        {"id": "7", "title": "缆绳", "content": "缆绳用麻制成。"},
        {"id": "8", "content": "Ropes are dear."},
    ]
    url = local_servers().answers("/search", json.dumps({"results": rows}).encode())
    configure({"ropes": {"kind": "http", "url": url, "allow": ["127.0.0.1"]}})
    async with connected() as client:
        answer = await client.call_tool("query", {"query": "缆绳用什么制成？"})
        assert [each["uri"] for each in answer.structured_content["passages"]] == ["", ""]
        assert "[1] 缆绳 id=ropes:7\n" in text_of(answer)
        read = await client.call_tool("fetch", {"id": "ropes:7"})
        assert read.structured_content["uri"] == ""
        assert text_of(read).startswith("缆绳 (ropes), characters")
    async with connected(profile="chatgpt") as client:
        found = await client.call_tool("search", {"query": "缆绳用什么制成？"})
        assert found.structured_content["results"][0] == {"id": "ropes:7", "title": "缆绳", "url": "ropes:7"}


async def test_an_id_without_its_source_is_looked_for_in_all_that_can_be_asked(
    configure, connected, harbour, dead
):
    away = {**dead, "document_url": dead["url"] + "?id={id}"}
    configure({"away": away, "harbour": harbour})
    async with connected() as client:
        read = await client.call_tool("fetch", {"id": "https://harbour.example/mooring"})
        assert read.structured_content["id"] == "harbour:https://harbour.example/mooring"
        unknown = await client.call_tool("fetch", {"id": "nothing"})
        assert unknown.is_error
        assert "There is nothing with the id 'nothing'." in text_of(unknown)
        assert "Not every source could be asked: " in text_of(unknown)


async def test_progress_counts_a_source_once_however_often_a_pattern_asks_it(
    configure, connected, harbour, ports
):
    variants = json.dumps({"queries": ["港长", "harbour master"]})
    configure({"harbour": harbour, "港口": ports}, llm=mock(variants, "Ada Brown [1]."))
    told: list[tuple[float, float | None]] = []

    async def note(value: float, total: float | None, message: str | None) -> None:
        told.append((value, total))

    async with connected() as client:
        arguments = {"query": "Who is the harbour master?", "pattern": "multi_query"}
        await client.call_tool("ask", arguments, progress_callback=note)
    assert told
    assert all(total == 2 and value < 3 for value, total in told)


async def test_the_profile_chatgpt_is_exactly_search_and_fetch(configure, connected, harbour, ports):
    configure({"harbour": harbour, "港口": ports})
    async with connected(profile="chatgpt") as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert {name: list(tool.input_schema["properties"]) for name, tool in tools.items()} == {
            "search": ["query"],
            "fetch": ["id"],
        }
        found = await client.call_tool("search", {"query": "青岛港的港长是谁？"})
        assert json.loads(text_of(found)) == found.structured_content
        hit = found.structured_content["results"][0]
        assert set(hit) == {"id", "title", "url"}
        document = await client.call_tool("fetch", {"id": hit["id"]})
        assert json.loads(text_of(document)) == document.structured_content
        assert "李明" in document.structured_content["text"]


def test_a_configuration_that_is_none_is_refused_at_the_start(configure, settings, home):
    configure()
    (home / "query.json").write_text("{", encoding="utf-8")
    with pytest.raises(ConfigError, match=r"query\.json:1:2"):
        build(settings())
    with pytest.raises(ConfigError, match="There is no file"):
        build(Settings(home, home / "other.json", config_given=True, version="1"))
