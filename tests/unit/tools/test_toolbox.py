from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from loom_core.errors import ConfigError, InvalidInputError, NotFoundError
from loom_core.tools.interface import CallContext, Tool, ToolOutput
from loom_core.tools.toolbox import Toolbox, is_allowed

_SCHEMA: Mapping[str, Any] = {"type": "object", "properties": {}}


class _Named(Tool):
    def __init__(
        self, name: str, wire: str = "", *, schema: Mapping[str, Any] = _SCHEMA, says: str = "做些事"
    ) -> None:
        self._name = name
        self._wire = wire or name.replace(":", "__")
        self._schema = schema
        self._says = says

    @property
    def name(self) -> str:
        return self._name

    @property
    def wire_name(self) -> str:
        return self._wire

    @property
    def description(self) -> str:
        return self._says

    @property
    def args_schema(self) -> Mapping[str, Any]:
        return self._schema

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        return ToolOutput("")


class _Live:
    def __init__(self, *tools: Tool) -> None:
        self.tools = tools

    def __call__(self) -> tuple[Tool, ...]:
        return self.tools


def _offered(box: Toolbox, **more: Any) -> list[str]:
    return [spec.name for spec in box.specs(**more)]


def test_a_tool_is_found_by_the_name_of_people_and_of_models() -> None:
    tool = _Named("文件:读取", "files__a1b2")
    box = Toolbox([tool])

    assert box.find("文件:读取") is box.find("files__a1b2") is tool
    assert box.tools() == (tool,)
    assert box.tools() is box.tools()


def test_for_a_name_that_there_is_not_the_nearest_are_told() -> None:
    names = ["fs:read_file", "fs:read_files", "fs:read_folder", "fs:write", "天气:查询"]
    box = Toolbox(map(_Named, names))

    with pytest.raises(NotFoundError) as caught:
        box.find("read_fil")
    assert caught.value.message == "There is no tool 'read_fil'."
    assert caught.value.advice == ("Did you mean `fs__read_file`, `fs__read_files`, `fs__read_folder`?")
    with pytest.raises(NotFoundError, match="天气__查询"):
        box.find("查询")
    with pytest.raises(NotFoundError, match="Use one of the tools that you were given"):
        box.find("zzz")
    with pytest.raises(NotFoundError) as caught:
        box.find("fs:write", allowed=["天气:*"])
    assert "fs" not in caught.value.advice


def test_tools_of_servers_come_and_go() -> None:
    live = _Live(_Named("a:x"))
    box = Toolbox([_Named("own")], live=[live])
    assert _offered(box) == ["own", "a__x"]

    live.tools = (_Named("b:y"),)

    assert _offered(box) == ["own", "b__y"]
    with pytest.raises(NotFoundError):
        box.find("a:x")


def test_two_given_tools_of_one_name_are_refused_and_a_live_one_is_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(ConfigError, match="Two tools are called 'x'"):
        Toolbox([_Named("x"), _Named("x")])
    with pytest.raises(ConfigError, match="Two tools are called 'b'"):
        Toolbox([_Named("a", "b"), _Named("b", "c")])

    own = _Named("x")
    box = Toolbox([own], live=[_Live(_Named("x"), _Named("y"))])

    assert box.find("x") is own
    assert [tool.name for tool in box.tools()] == ["x", "y"]
    assert "the tool x is left out" in caplog.text


@pytest.mark.parametrize(
    ("allowed", "offered"),
    [
        (None, ["own", "fs__read", "fs__写"]),
        ([], []),
        (["*"], ["own", "fs__read", "fs__写"]),
        (["fs:*"], ["fs__read", "fs__写"]),
        (["fs:写", "own"], ["own", "fs__写"]),
        (["fs__read"], ["fs__read"]),
        (["re:fs:.*d"], ["fs__read"]),
    ],
)
def test_only_what_is_allowed_is_offered(allowed: list[str] | None, offered: list[str]) -> None:
    box = Toolbox([_Named("own"), _Named("fs:read"), _Named("fs:写", "fs__写")])

    assert _offered(box, allowed=allowed) == offered


def test_a_wrong_pattern_is_named() -> None:
    with pytest.raises(ConfigError, match="not a usable regular expression"):
        is_allowed(_Named("x"), ["re:("])


def test_of_many_tools_a_model_is_offered_a_search_and_what_it_has_found() -> None:
    live = _Live(*(_Named(f"s:tool{number}") for number in range(50)))
    box = Toolbox([_Named("own")], live=[live], most_shown=10)
    assert _offered(box) == ["own", "tool_search"]

    box.offer(["s__tool7", "s:tool9", "gone"])

    assert _offered(box) == ["own", "tool_search", "s__tool7", "s__tool9"]
    assert _offered(box, allowed=["own", "s:tool9"]) == ["own", "s__tool9"]
    assert box.find("tool_search").name == "tool_search"
    assert box.find("s:tool3") is live.tools[3]
    live.tools = live.tools[:9]
    assert len(_offered(box)) == 10


def test_further_tools_are_offered_next_to_the_fixed_ones_of_a_box() -> None:
    live = _Live(*(_Named(f"s:tool{number}") for number in range(50)))
    box = Toolbox([_Named("own")], live=[live], most_shown=10).with_tools([_Named("load_skill")])

    assert _offered(box) == ["load_skill", "own", "tool_search"]
    with pytest.raises(ConfigError, match="Two tools are called 'own'"):
        box.with_tools([_Named("own")])


def test_tools_with_long_descriptions_are_many_sooner() -> None:
    long = [_Named(f"长{number}", f"long{number}", says="很长的描述" * 500) for number in range(3)]

    assert _offered(Toolbox(long, most_tokens=3000)) == ["tool_search"]
    assert len(_offered(Toolbox(long, most_tokens=30_000))) == 3


async def test_the_search_that_is_offered_finds_the_tools_of_the_box() -> None:
    box = Toolbox(
        live=[_Live(_Named("s:天气", says="查询天气"), _Named("s:邮件", says="发送邮件"))], most_shown=1
    )

    output = await box.find("tool_search").call({"query": "天气"})

    assert "s:天气" in output.text
    assert _offered(box) == ["tool_search", "s__天气"]
    box.offer(["s:邮件"])
    assert _offered(box) == ["tool_search", "s__邮件"], "the latest are shown"


async def test_a_search_finds_only_what_the_run_may_use() -> None:
    live = _Live(_Named("s:天气", says="查询天气"), _Named("s:邮件", says="发送天气邮件"))
    box = Toolbox(live=[live], most_shown=1)
    allowed = ["s:天气"]

    search = box.find("tool_search", allowed=allowed)
    found = await search.call({"query": "天气"})

    assert found.structured == {
        "tools": [{"name": "s:天气", "wire_name": "s__天气"}],
        "fitting": 1,
        "total": 1,
    }
    assert search is box.find("tool_search", allowed=allowed) is box.current(search)
    assert search is not box.find("tool_search")
    live.tools = (live.tools[1],)
    assert "None of the 0 tools fits" in (await search.call({"query": "天气"})).text
    assert box.current(live.tools[0]) is live.tools[0]
    for number in range(200):
        box.find("tool_search", allowed=[f"s{number}:*"])


def test_a_tool_that_no_model_can_be_told_of_is_left_out(caplog: pytest.LogCaptureFixture) -> None:
    broken = _Named("s:坏", schema={"type": "object", "default": {1, 2}})
    deep: dict[str, Any] = {"type": "object"}
    for _ in range(2000):
        deep = {"type": "object", "properties": {"a": deep}}
    box = Toolbox(live=[_Live(_Named("s:好"), broken, _Named("s:deep", schema=deep))])

    assert [spec.name for spec in box.specs()] == [box.tools()[0].wire_name]
    assert "the tool s:坏 is not offered" in caplog.text
    with pytest.raises(ConfigError, match="'s:坏' is not JSON"):
        Toolbox([broken])


def test_arguments_are_checked_put_right_and_given_their_defaults() -> None:
    tool = _Named(
        "x",
        schema={
            "type": "object",
            "properties": {
                "路径": {"type": "string"},
                "limit": {"type": "integer", "default": 5},
                "options": {"type": "object"},
                "anything": True,
            },
            "required": ["路径"],
            "additionalProperties": False,
        },
    )
    box = Toolbox([tool])

    assert box.prepare_arguments(tool, {"路径": "a", "options": '{"deep": true}'}) == {
        "路径": "a",
        "limit": 5,
        "options": {"deep": True},
    }
    with pytest.raises(InvalidInputError, match="`路径` is required"):
        box.prepare_arguments(tool, {})
    with pytest.raises(InvalidInputError, match="did you mean `limit`"):
        box.prepare_arguments(tool, {"路径": "a", "limits": 1})


def test_a_tool_that_changes_what_it_is_given_leaves_its_defaults_alone() -> None:
    schema = {"type": "object", "properties": {"路径": {"type": "array", "default": []}}}
    tool = _Named("x", schema=schema)
    box = Toolbox([tool])

    box.prepare_arguments(tool, {})["路径"].append("a")

    assert box.prepare_arguments(tool, {}) == {"路径": []}


def test_a_tool_that_has_gone_or_prepares_arguments_itself_is_asked_itself() -> None:
    class Own(_Named):
        def prepare_arguments(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
            return {"seen": sorted(arguments)}

    assert Toolbox([_Named("x")]).prepare_arguments(Own("x"), {"b": 1, "a": 2}) == {"seen": ["a", "b"]}


def test_a_tool_whose_schema_cannot_be_used_says_so() -> None:
    tool = _Named("坏", schema={"type": "array"})

    with pytest.raises(ConfigError, match="is of type 'array', not object"):
        Toolbox([tool]).prepare_arguments(tool, {})
