"""Tools made from functions: what a model is shown of them, and what comes of its calls."""

from __future__ import annotations

import re
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Annotated, Any, Literal

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, Field

from loom_core.errors import NotFoundError
from loom_core.llm.messages import ImagePart
from loom_core.tools.depth import current_depth, inherit_depth
from loom_core.tools.function_tool import Docstring, output_of, tool
from loom_core.tools.interface import CallContext, OutputFile, ToolAnnotations, ToolOutput


class Place(BaseModel):
    """Where it is."""

    city: str
    title: str = ""


class Unit(Enum):
    CELSIUS = "c"
    FAHRENHEIT = "f"


@dataclass
class Weather:
    city: str
    degrees: float


@tool(read_only=True, open_world=False)
async def weather(
    place: Place,
    unit: Unit = Unit.CELSIUS,
    days: Annotated[int, Field(ge=1, le=9, description="How many days.")] = 1,
    style: Literal["short", "long"] = "short",
    note: str | None = None,
) -> Weather:
    """Tell the weather of a place.

    Args:
        place: The place.
        days: Not shown, as the field says it better.
        note: What to add.
    """
    return Weather(f"{place.city}/{unit.value}/{days}/{style}/{note}", 21.5)


async def test_a_model_is_shown_what_signature_and_docstring_say() -> None:
    assert (weather.name, weather.wire_name) == ("weather", "weather")
    assert weather.description == "Tell the weather of a place."
    assert weather.args_schema == {
        "type": "object",
        "additionalProperties": False,
        "required": ["place"],
        "properties": {
            "place": {
                "type": "object",
                "description": "The place.",
                "properties": {"city": {"type": "string"}, "title": {"type": "string", "default": ""}},
                "required": ["city"],
            },
            "unit": {"type": "string", "enum": ["c", "f"], "default": "c"},
            "days": {
                "type": "integer",
                "minimum": 1,
                "maximum": 9,
                "default": 1,
                "description": "How many days.",
            },
            "style": {"type": "string", "enum": ["short", "long"], "default": "short"},
            "note": {"type": "string", "description": "What to add."},
        },
    }
    assert weather.spec().name == "weather"


async def test_the_function_gets_values_of_its_own_types() -> None:
    output = await weather.call({"place": {"city": "北京"}, "unit": "f", "days": "2", "note": None})

    assert output.text == '{"city":"北京/f/2/short/None","degrees":21.5}'
    assert output.structured == {"city": "北京/f/2/short/None", "degrees": 21.5}
    assert not output.is_error


async def test_an_object_that_was_written_as_text_is_read() -> None:
    output = await weather.call({"place": '{"city": "上海"}'})

    assert output.text.startswith('{"city":"上海/c/1')


async def test_wrong_arguments_are_told_with_place_expectation_and_what_was_given() -> None:
    output = await weather.call({"place": {"city": 3, "titel": "x"}, "dayz": 1, "style": "tiny"})

    assert output.is_error
    assert "`style`: input should be 'short' or 'long', got 'tiny'" in output.text
    assert "`dayz` is not an argument, did you mean `days`" in output.text
    assert output.text.endswith("Valid arguments: place (required), unit, days, style, note.")


async def test_the_decorated_function_is_still_a_function() -> None:
    told = await weather(Place(city="a"))

    assert told.degrees == 21.5
    assert repr(weather) == "<FunctionTool weather>"
    assert set(weather.args_model.model_fields) == {"place", "unit", "days", "style", "note"}


def test_the_worst_is_assumed_of_what_is_not_said() -> None:
    @tool
    def plain() -> None: ...

    @tool(
        name="删除",
        description="Removes.",
        idempotent=True,
        concurrency_safe=True,
        approval_reason="It hurts.",
    )
    def other() -> None: ...

    assert plain.annotations == ToolAnnotations()
    assert not plain.is_concurrency_safe
    assert (plain.description, plain.needs_approval) == ("plain", False)
    assert other.annotations == ToolAnnotations(idempotent=True)
    assert other.is_concurrency_safe
    assert (other.name, other.description, other.approval_reason) == ("删除", "Removes.", "It hurts.")
    assert re.fullmatch(r"tool_[0-9a-f]{15}", other.wire_name)
    assert other.needs_approval


def test_read_only_tools_may_run_concurrently_and_again() -> None:
    assert weather.annotations == ToolAnnotations(
        read_only=True, destructive=False, idempotent=True, open_world=False
    )
    assert weather.is_concurrency_safe


async def test_names_that_a_model_class_keeps_for_itself_can_be_arguments() -> None:
    @tool
    def query(schema: str, copy: int, _x: int, model_config: str = "m", 城市: str = "无") -> str:  # noqa: N803
        return f"{schema} {copy} {_x} {model_config} {城市}"

    output = await query.call({"schema": "s", "copy": 1, "_x": 2, "城市": "广州"})

    assert output.text == "s 1 2 m 广州"
    assert list(query.args_schema["properties"]) == ["schema", "copy", "_x", "model_config", "城市"]

    @tool
    def pair(schema: str, argument_schema: str) -> str:
        return f"{schema} {argument_schema}"

    assert (await pair.call({"schema": "s", "argument_schema": "a"})).text == "s a"


async def test_of_thousands_of_invalid_items_a_few_are_named() -> None:
    @tool
    def add(numbers: list[int]) -> int:
        return sum(numbers)

    output = await add.call({"numbers": ["x"] * 10_000})

    assert output.is_error
    assert "`numbers.7`" in output.text
    assert "; and 9,992 more. Valid arguments: numbers (required)." in output.text


async def test_models_next_to_the_function_are_found() -> None:
    class Local(BaseModel):
        a: int

    @tool(name="x")
    def function(local: Local) -> int:
        return local.a

    assert (await function.call({"local": {"a": 4}})).text == "4"


async def test_a_function_that_blocks_runs_in_a_thread_with_the_callers_context() -> None:
    here = threading.get_ident()

    @tool
    def where() -> list[Any]:
        return [threading.get_ident() == here, current_depth()]

    with inherit_depth({"loom/depth": 2}):
        assert (await where.call({})).structured == [False, 2]


async def test_the_context_is_given_and_is_no_argument() -> None:
    told: list[tuple[float, float | None, str]] = []

    async def progress(done: float, total: float | None, message: str) -> None:
        told.append((done, total, message))

    @tool
    def in_thread(context: CallContext, n: int) -> str:
        assert context.progress is not None
        anyio.from_thread.run(context.progress, n, 2.0, "一半")
        return str(context.depth)

    @tool
    async def in_loop(n: int, context: CallContext | None = None) -> str:
        assert context is not None
        return str(context.depth)

    given = CallContext(progress=progress, depth=3)
    assert (await in_thread.call({"n": 1}, context=given)).text == "3"
    assert told == [(1, 2.0, "一半")]
    assert (await in_loop.call({"n": 1}, context=given)).text == "3"
    assert (await in_loop.call({"n": 1})).text == "0"
    assert list(in_loop.args_schema["properties"]) == ["n"]


async def test_methods_are_tools_of_their_object() -> None:
    class Counter:
        def __init__(self) -> None:
            self.count = 0

        def add(self, n: int) -> int:
            """Add to it."""
            self.count += n
            return self.count

    add = tool(Counter().add, name="counter")

    assert [(await add.call({"n": 2})).text for _ in range(2)] == ["2", "4"]
    assert add.description == "Add to it."


async def test_functions_that_are_given_a_part_and_objects_are_tools() -> None:
    async def send(account: str, text: str, *, key: str, times: int = 1) -> str:
        """Send a text.

        Args:
            text: What to send.
        """
        return f"{account}/{key}: {text * times}"

    class Doubling:
        async def __call__(self, n: int) -> int:
            """Double it."""
            return 2 * n

    bound = tool(partial(send, "王", key="秘密"))
    double = tool(Doubling(), name="翻倍")

    assert (bound.name, bound.description) == ("send", "Send a text.")
    assert list(bound.args_schema["properties"]) == ["text", "times"]
    assert "秘密" not in str(bound.args_schema)
    assert bound.args_schema["properties"]["text"]["description"] == "What to send."
    assert (await bound.call({"text": "好"})).text == "王/秘密: 好"
    assert "not an argument" in (await bound.call({"text": "好", "key": "x"})).text
    assert (double.description, (await double.call({"n": 3})).text) == ("Double it.", "6")


async def test_what_is_returned_need_not_be_known_and_a_default_need_not_be_json() -> None:
    marker = object()

    def find(path: str, other: object = marker) -> NotImportedHere:  # type: ignore[name-defined]  # noqa: F821
        """Find it."""
        return other is marker

    assert (await tool(find).call({"path": "x"})).text == "true"


async def test_an_error_of_ours_is_told_with_its_advice_and_others_go_on() -> None:
    @tool
    async def ours() -> None:
        raise NotFoundError("There is no 港口.", advice="Look elsewhere.")

    @tool
    def theirs() -> None:
        raise KeyError("x")

    assert await ours.call({}) == ToolOutput("There is no 港口. Look elsewhere.", is_error=True)
    with pytest.raises(KeyError):
        await theirs.call({})


async def test_a_hanging_function_does_not_hold_back_a_cancellation() -> None:
    release = threading.Event()

    @tool
    def hang() -> None:
        release.wait(10)

    try:
        with anyio.fail_after(30):
            with anyio.move_on_after(0.05) as scope:
                await hang.call({})
            assert scope.cancelled_caught
    finally:
        release.set()


@pytest.mark.parametrize(
    ("result", "text", "structured"),
    [
        ("文", "文", None),
        (None, "", None),
        (True, "true", None),
        (1.5, "1.5", None),
        ([1, "文"], '[1,"文"]', [1, "文"]),
        ((Place(city="a"),), '[{"city":"a","title":""}]', [{"city": "a", "title": ""}]),
        ({"a": float("inf")}, '{"a":"Infinity"}', {"a": "Infinity"}),
        (Unit.CELSIUS, '"c"', None),
    ],
)
def test_what_is_returned_is_text_and_data(result: object, text: str, structured: object) -> None:
    assert output_of(result) == ToolOutput(text, structured)  # type: ignore[arg-type]


def test_outputs_and_images_are_passed_on() -> None:
    output = ToolOutput("x", is_error=True)
    assert output_of(output) is output
    assert output_of(ImagePart(b"1")).parts == (ImagePart(b"1"),)
    assert output_of(OutputFile(b"1", "a.pdf")).files == (OutputFile(b"1", "a.pdf"),)


def test_what_json_cannot_say_is_an_error_of_the_program() -> None:
    with pytest.raises(TypeError, match="a value that JSON cannot express"):
        output_of({"a": object()})


def test_parameters_have_to_be_annotated_and_named() -> None:
    with pytest.raises(ValueError, match="parameter 'a' has no annotation"):

        @tool
        def untyped(a) -> None: ...

    with pytest.raises(ValueError, match="cannot be given by name"):

        @tool
        def many(*a: int) -> None: ...


def test_what_cannot_be_a_tool_is_refused_where_it_is_made() -> None:
    def numbers(n: int) -> Iterator[int]:
        yield from range(n)

    async def later(n: int) -> AsyncIterator[int]:
        yield n

    def calls(back: Callable[[], int]) -> None: ...

    def knows(person: Doing) -> None: ...

    class Doing:
        def __call__(self) -> None: ...

    for generator in (numbers, later):
        with pytest.raises(ValueError, match="it is a generator"):
            tool(generator)
    with pytest.raises(ValueError, match="'calls': an annotation cannot be expressed in JSON Schema"):
        tool(calls)
    with pytest.raises(ValueError, match="'knows': an annotation cannot be used: Unable to generate"):
        tool(knows)
    for name in (" ", "a\nb", " 计算"):
        with pytest.raises(ValueError, match="cannot be called"):
            tool(weather.function, name=name)
    for nameless in (Doing(), lambda: None):
        with pytest.raises(ValueError, match="give `name`"):
            tool(nameless)


@given(st.dictionaries(st.text(max_size=6), st.none() | st.integers() | st.text(max_size=6), max_size=4))
async def test_any_arguments_give_an_answer(arguments: dict[str, Any]) -> None:
    assert (await weather.call(arguments)).is_error


def _documented(text: str) -> Callable[[], None]:
    def function() -> None: ...

    function.__doc__ = text
    return function


def test_description_and_arguments_are_told_apart() -> None:
    said = Docstring.of(
        _documented(
            """Look up the weather.

            It is that of now: not a forecast.

            Args:
                city: the city,
                    as people write it: `北京`.
                unit (str): `c` or `f`.
                days (int, optional):
                    how many

            Returns:
                A line of text.

            Raises:
                OSError: never.
            """
        )
    )

    assert said.description == (
        "Look up the weather.\n\nIt is that of now: not a forecast.\n\nReturns:\n    A line of text."
    )
    assert said.arguments == {
        "city": "the city, as people write it: `北京`.",
        "unit": "`c` or `f`.",
        "days": "how many",
    }


def test_a_section_ends_where_text_stands_at_the_margin_again() -> None:
    said = Docstring.of(_documented("One.\n\nArgs:\n    a: b\nTwo."))

    assert said.description == "One.\n\nTwo."
    assert said.arguments == {"a": "b"}


def test_a_line_with_a_colon_is_no_section_where_nothing_is_indented_below() -> None:
    said = Docstring.of(_documented("Say one of these:\n\nNote:\nnothing"))

    assert said.description == "Say one of these:\n\nNote:\nnothing"


def test_a_function_without_docstring_says_nothing() -> None:
    assert Docstring.of(lambda: None) == Docstring("", {})


@given(st.text(alphabet="ab: \n\t文()*A", max_size=200))
def test_any_docstring_can_be_read(text: str) -> None:
    said = Docstring.of(_documented(text))

    assert "".join(said.description.split()) in "".join(text.split())
