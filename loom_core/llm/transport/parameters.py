"""Supported parameters: map the options of a request to those that the vendor supports."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING

from loom_core.cjk import is_chinese
from loom_core.errors import InvalidInputError
from loom_core.llm.text import compact_json

if TYPE_CHECKING:
    from collections.abc import Collection

    from loom_core.llm.interface import ChatRequest, Effort, ToolChoice
    from loom_core.llm.vendors import JsonMode, ProviderSpec

__all__ = ["SupportedParameters", "check_tool_choice", "map_parameters"]

_UNSAFE_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")
_LONGEST_NAME = 63  # one less than vendors accept, for a character that makes it unique


@dataclass(frozen=True, slots=True, kw_only=True)
class SupportedParameters:
    """The parameters of a request as the vendor supports them.

    Attributes:
        effort: a supported effort; None for the vendor's default.
        thinking: whether the model thinks.
        temperature: None if it is unsupported.
        top_p: None if it is unsupported.
        tool_choice: a supported choice. `none` always works: if it is unsupported, no tools are sent.
        json_mode: how structured output is requested; None for plain text.
        output_tool: the tool that takes the response, if `json_mode` is `tool`; else empty.
        instructions: the schema in words, if the vendor does not enforce it, in the language in which the
            conversation begins; else, or if the messages describe it, empty.
    """

    effort: Effort | None
    thinking: bool
    temperature: float | None
    top_p: float | None
    tool_choice: ToolChoice
    json_mode: JsonMode | None
    output_tool: str
    instructions: str


def map_parameters(request: ChatRequest, spec: ProviderSpec) -> SupportedParameters:
    """Map the parameters of a request to the nearest supported ones.

    Raises:
        InvalidInputError: the chosen tool is not among the tools.
    """
    effort = spec.nearest(spec.tool_effort if spec.tool_effort and request.tools else request.effort)
    thinking = spec.thinking(effort)
    mode = None if request.output is None else spec.json_mode
    if mode is not None and thinking and spec.json_mode_thinking is not None:
        mode = spec.json_mode_thinking
    if mode == "tool" and not spec.supports_tools:
        mode = "prompt"
    output_tool = _output_tool(request) if mode == "tool" else ""
    names = [tool.name for tool in request.tools] + ([output_tool] if output_tool else [])
    allowed = spec.tool_choices
    if thinking and spec.tool_choices_thinking is not None:
        allowed &= spec.tool_choices_thinking
    choice = _choice(output_tool or request.tool_choice, names, allowed)
    warm = spec.temperature == "always" or (spec.temperature == "without_thinking" and not thinking)
    temperature = None if request.temperature is None else max(request.temperature, spec.lowest_temperature)
    return SupportedParameters(
        effort=effort,
        thinking=thinking,
        temperature=temperature if warm else None,
        top_p=request.top_p if warm else None,
        tool_choice=choice,
        json_mode=mode,
        output_tool=output_tool,
        instructions=_instructions(request, mode, output_tool, choice),
    )


def _output_tool(request: ChatRequest) -> str:
    """Return a name for the output tool: the schema's name, unless a tool has it."""
    name = _UNSAFE_IN_NAMES.sub("_", request.output.name if request.output else "")[:_LONGEST_NAME]
    taken = {tool.name for tool in request.tools}
    return f"{name or 'answer'}_" if (name or "answer") in taken else name or "answer"


def _choice(choice: ToolChoice, names: list[str], allowed: Collection[str]) -> ToolChoice:
    """Return the nearest supported choice.

    `required` with a single tool becomes its name, and the other way round; else the model decides.
    """
    check_tool_choice(choice, names)
    if not names or choice in {"auto", "none"}:
        return choice
    wanted: tuple[ToolChoice, ...] = (choice,)
    if len(names) == 1:
        wanted = (*wanted, "required", names[0])
    return next((each for each in wanted if _kind(each) in allowed), "auto")


def check_tool_choice(choice: ToolChoice, names: Collection[str]) -> None:
    """Check that a chosen tool is among the tools.

    Raises:
        InvalidInputError: it is not.
    """
    if choice not in {"auto", "none", "required", *names}:
        raise InvalidInputError(
            f"The tool choice {choice!r} is not among the tools of the request.",
            advice="Choose one of them, or `auto`, `none` or `required`.",
        )


def _kind(choice: ToolChoice) -> str:
    return "required" if choice == "required" else "named"


def _instructions(request: ChatRequest, mode: JsonMode | None, tool: str, choice: ToolChoice) -> str:
    output = request.output
    if output is None or mode == "json_schema":
        return ""
    chinese = bool(request.messages) and is_chinese(request.messages[0].text)
    if mode == "tool":
        if choice in {tool, "required"}:
            return ""
        return (
            f"请调用工具 `{tool}` 给出回答。"
            if chinese
            else f"Give your answer by calling the tool `{tool}`."
        )
    if output.is_described:
        return ""
    schema = compact_json(output.schema)
    if chinese:
        about = f"（{output.description}）" if output.description else ""
        return f"只用一个 JSON 对象{about}回答，它要符合下面的 JSON Schema，不要写别的内容：\n{schema}"
    about = f" ({output.description})" if output.description else ""
    return f"Answer with one JSON object{about} that fits this JSON Schema, and with nothing else:\n{schema}"
