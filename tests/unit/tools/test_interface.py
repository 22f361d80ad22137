from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from loom_core.llm.messages import ImagePart, TextPart
from loom_core.tools.interface import CallContext, Tool, ToolAnnotations, ToolOutput


class _Adder(Tool):
    @property
    def name(self) -> str:
        return "add"

    @property
    def description(self) -> str:
        return "Add two numbers."

    @property
    def args_schema(self) -> Mapping[str, Any]:
        return {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}

    async def call(self, arguments: Mapping[str, Any], *, context: CallContext | None = None) -> ToolOutput:
        if context and context.progress:
            await context.progress(1, 1, "")
        return ToolOutput(str(arguments["a"] + arguments["b"]))


def test_the_worst_is_assumed_of_a_tool_that_says_nothing() -> None:
    tool = _Adder()

    assert tool.annotations == ToolAnnotations(
        read_only=False, destructive=True, idempotent=False, open_world=True
    )
    assert not tool.is_concurrency_safe
    assert not tool.annotations.repeatable


def test_read_only_tools_may_run_concurrently_and_again() -> None:
    class Reader(_Adder):
        @property
        def annotations(self) -> ToolAnnotations:
            return ToolAnnotations(read_only=True)

    assert Reader().is_concurrency_safe
    assert Reader().annotations.repeatable


def test_a_model_is_offered_the_tool_by_its_wire_name() -> None:
    class Other(_Adder):
        @property
        def name(self) -> str:
            return "数学:加"

        @property
        def wire_name(self) -> str:
            return "server__tool_x"

    assert _Adder().spec().name == "add"
    spec = Other().spec()
    assert (spec.name, spec.description, set(spec.parameters["properties"])) == (
        "server__tool_x",
        "Add two numbers.",
        {"a", "b"},
    )


async def test_who_calls_is_told_how_far_it_is() -> None:
    steps: list[tuple[float, float | None, str]] = []

    async def progress(done: float, total: float | None, message: str) -> None:
        steps.append((done, total, message))

    output = await _Adder().call({"a": 1, "b": 2}, context=CallContext(progress=progress))

    assert (output.text, steps) == ("3", [(1, 1, "")])


def test_an_output_answers_a_models_call() -> None:
    image = ImagePart(b"x")

    message = ToolOutput("失败", is_error=True, parts=(image,)).message("call_1")

    assert (message.call_id, message.parts, message.failed) == ("call_1", (TextPart("失败"), image), True)
    assert ToolOutput("", parts=(image,)).message("2").parts == (image,)
    assert ToolOutput("").message("3").parts == (TextPart(""),)
