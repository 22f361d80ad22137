from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.tools.interface import CallContext, Tool, ToolOutput
from loom_core.tools.tool_search import ToolSearch, search_words


class _Named(Tool):
    def __init__(self, name: str, description: str, *arguments: str) -> None:
        self._name = name
        self._description = description
        self._arguments = arguments

    @property
    def name(self) -> str:
        return self._name

    @property
    def wire_name(self) -> str:
        return self._name.replace(":", "__")

    @property
    def description(self) -> str:
        return self._description

    @property
    def args_schema(self) -> Mapping[str, Any]:
        return {
            "type": "object",
            "properties": {name: {"type": "string"} for name in self._arguments},
            "required": list(self._arguments[:1]),
        }

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        return ToolOutput("")


_TOOLS: tuple[Tool, ...] = (
    _Named("github:createIssue", "Open a new issue in a repository.", "repo", "title"),
    _Named("github:search_code", "Search code across repositories.", "query"),
    _Named("files:read_file", "Read the content of a file.", "path"),
    _Named("文件:读取", "读取一个文件的全部内容。", "路径"),
    _Named("天气:查询", "查询某个城市今天的天气预报。", "城市"),
    _Named("mail:send", "Send an e-mail to someone.", "to", "subject", "body"),
)


def _found(query: str, limit: int = 3) -> list[str]:
    return [tool.name for tool in ToolSearch(lambda: _TOOLS).search(query, limit=limit)[0]]


@pytest.mark.parametrize(
    ("query", "best"),
    [
        ("create an issue on github", "github:createIssue"),
        ("creating issues", "github:createIssue"),
        ("reads files", "files:read_file"),
        ("read_file", "files:read_file"),
        ("读取文件", "文件:读取"),
        ("今天天气怎么样", "天气:查询"),
        ("ＳＥＮＤ mail", "mail:send"),
        ("subject", "mail:send"),
        ("城市", "天气:查询"),
    ],
)
def test_a_tool_is_found_by_what_it_does(query: str, best: str) -> None:
    assert _found(query)[0] == best


def test_names_count_more_than_descriptions() -> None:
    tools: tuple[Tool, ...] = (_Named("a:x", "Delete a branch."), _Named("a:delete", "Remove."))

    assert [tool.name for tool in ToolSearch(lambda: tools).search("delete")[0]] == ["a:delete", "a:x"]


@pytest.mark.parametrize("query", ["qqqq", "", "！？", "🦊"])
def test_what_fits_nothing_finds_nothing(query: str) -> None:
    assert _found(query) == []


def test_only_tools_that_are_there_now_are_found() -> None:
    tools: list[tuple[Tool, ...]] = [_TOOLS, _TOOLS[1:]]
    search = ToolSearch(lambda: tools[0])

    assert search.search("create issue")[0][0].name == "github:createIssue"
    tools.pop(0)
    assert all(tool.name != "github:createIssue" for tool in search.search("create issue")[0])


async def test_a_model_is_shown_names_descriptions_and_arguments() -> None:
    output = await ToolSearch(lambda: _TOOLS).call({"query": "read issue file", "limit": 1})

    assert output.text.splitlines()[0] == (
        "- `files__read_file` (files:read_file): Read the content of a file. Arguments: path (required)."
    )
    assert "[1 of 2 that fit shown" in output.text
    assert output.structured == {
        "tools": [{"name": "files:read_file", "wire_name": "files__read_file"}],
        "fitting": 2,
        "total": 6,
    }


async def test_a_search_without_a_hit_says_what_to_do() -> None:
    output = await ToolSearch(lambda: _TOOLS).call({"query": "qqqq"})

    assert not output.is_error
    assert "None of the 6 tools fits. Try other words" in output.text


@pytest.mark.parametrize(
    "arguments", [{}, {"query": ""}, {"query": "a", "limit": 0}, {"query": "a", "more": 1}]
)
async def test_wrong_arguments_are_told(arguments: dict[str, Any]) -> None:
    output = await ToolSearch(lambda: _TOOLS).call(arguments)

    assert output.is_error
    assert output.text.startswith("Invalid arguments for `tool_search`: ")


async def test_a_long_description_is_shown_in_part() -> None:
    tools: tuple[Tool, ...] = (_Named("a:b", "find " + "x " * 1000, *[f"p{n}" for n in range(20)]),)

    text = (await ToolSearch(lambda: tools).call({"query": "find"})).text

    assert len(text) < 600
    assert text.endswith("p11, ….")


def test_thousands_of_tools_are_searched_at_once() -> None:
    tools: tuple[Tool, ...] = tuple(
        _Named(f"s{n % 20}:tool_{n}", f"Does thing number {n} with 数据 and files.", "a") for n in range(2000)
    )
    search = ToolSearch(lambda: tools)
    search.search("warm")
    start = time.process_time()

    assert search.search("tool 1234")[0][0].name == "s14:tool_1234"
    assert time.process_time() - start < 1


@given(st.text())
def test_any_text_has_words(text: str) -> None:
    assert all(search_words(text))


def test_a_model_is_offered_the_search_as_a_tool() -> None:
    search = ToolSearch(lambda: _TOOLS)

    spec = search.spec()
    assert (spec.name, spec.parameters["required"]) == ("tool_search", ["query"])
    assert "search before you say" in spec.description
    assert search.is_concurrency_safe
    assert not search.annotations.open_world


async def test_a_tool_without_arguments_says_so() -> None:
    tools: tuple[Tool, ...] = (_Named("a:now", "The time."),)

    assert (await ToolSearch(lambda: tools).call({"query": "time"})).text.endswith("Takes no arguments.")
