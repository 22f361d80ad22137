"""Conversations that a program may send to any model, for property tests: hypothesis strategies."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from hypothesis import strategies as st

from loom_core.llm.interface import ChatRequest, OutputSchema, ToolSpec
from loom_core.llm.messages import (
    AssistantMessage,
    AssistantPart,
    ImagePart,
    Message,
    ReasoningPart,
    SystemMessage,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
    UserPart,
)
from loom_core.testing.vendors.anthropic_blocks import REDACTED, anthropic_signature
from loom_core.testing.vendors.chat_quirks import gemini_signature

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["chat_requests", "conversations"]

_TEXTS = st.one_of(
    st.sampled_from(
        [
            "",
            " ",
            "\n\n",
            "你好，世界！",
            "请用 JSON 回答。",
            "A plain sentence.",
            "<think>not a thought</think> an answer",
            "</think>",
            '{"type": "tool_use"}',
            "😀 naïve\u200b \x00 \ufeff",
        ]
    ),
    st.text(st.characters(exclude_categories=["Cs"]), max_size=30),
)
_SAID = _TEXTS.filter(lambda text: bool(text.strip()))
_MODELS: Mapping[str, str] = {
    "": "",
    "openai": "gpt-5.5",
    "anthropic": "claude-sonnet-5-5",
    "deepseek": "deepseek-flash",
    "qwen": "qwen3.8-flash",
    "gemini": "gemini-3.8-flash",
    "kimi": "kimi-k3",
    "doubao": "doubao-seed-2-1-pro-260915",
    "zhipu": "glm-5.3",
    "minimax": "MiniMax-M3",
    "ollama": "qwen3-vl:8b",
    "vllm": "Qwen/Qwen3.5-9B",
    "gpustack": "qwen3.5-9b",
    "openai_compatible": "some-model",
    "custom": "another-model",
}
"""Who may have answered: a provider's name and one of its models."""

_FIELDS: Mapping[str, str] = {
    "deepseek": "reasoning_content",
    "qwen": "reasoning_content",
    "kimi": "reasoning_content",
    "doubao": "reasoning_content",
    "zhipu": "reasoning_content",
    "ollama": "reasoning",
    "vllm": "reasoning",
    "gpustack": "reasoning",
    "openai_compatible": "<think>",
    "": "reasoning_content",
}
_NAMES = st.sampled_from(["search", "get_weather", "kb__query", "天气 查询", "functions.read", "x" * 80])
_ARGUMENTS = st.dictionaries(
    st.sampled_from(["query", "城市", "n"]),
    st.one_of(_TEXTS, st.integers(), st.none(), st.lists(st.booleans(), max_size=2)),
    max_size=3,
)
_UNREADABLE = st.sampled_from(['{"query": "杭', "[1, 2]", "null?", "{'a': 1}", "NaN", '"text"'])
_FORMS: list[Mapping[str, Any]] = [
    {"type": "object", "properties": {}},
    {"type": "object", "properties": {"query": {"type": "string"}}, "required": ["query"]},
    {
        "type": "object",
        "title": "Facts",
        "properties": {
            "facts": {"type": "array", "items": {"$ref": "#/$defs/Fact"}, "minItems": 2, "maxItems": 9},
            "语言": {"enum": ["中文", "English"]},
            "limit": {"type": ["integer", "null"], "minimum": 1, "exclusiveMaximum": 100, "default": 10},
            "any": {},
            "whatever": True,
            "either": {"oneOf": [{"type": "string", "format": "date"}, {"const": 0}]},
        },
        "required": ["facts"],
        "$defs": {
            "Fact": {
                "type": "object",
                "properties": {
                    "subject": {"type": "string", "pattern": "^.+$"},
                    "more": {"type": "object"},
                },
                "required": ["subject"],
                "additionalProperties": False,
            }
        },
    },
]
_SCHEMAS = st.sampled_from(_FORMS)
_PNG = b"\x89PNG\r\n\x1a\n" + bytes(8)


@st.composite
def conversations(
    draw: st.DrawFn, *, images: bool = True, image_urls: bool = True, max_turns: int = 4
) -> tuple[Message, ...]:
    """Any sensible conversation, ready to be answered: it ends with a user or with results of tools.

    Answers come from several providers, with reasoning in the form of each or without it, opaque signatures
    that are right, calls one by one and in parallel, unreadable arguments, ids that come again; results fail,
    are empty, come in another order, are missing where a run was stopped, or lack their call where the
    beginning was cut off. System messages stand anywhere. There is always something that a user said.

    Args:
        draw: of hypothesis.
        images: whether users and tools show images.
        image_urls: whether images may be given by address.
        max_turns: how many times the user speaks at most.
    """
    messages: list[Message] = []
    if draw(st.booleans()):
        messages.append(SystemMessage(draw(_TEXTS)))
    if draw(st.integers(0, 9)) == 0:
        messages.append(ToolMessage("call_cut_off", (TextPart("a result without its call"),)))
    if draw(st.integers(0, 4)) == 0:
        messages.append(AssistantMessage((TextPart(draw(_SAID)),)))
    turns = draw(st.integers(1, max_turns))
    for turn in range(turns):
        messages.append(UserMessage(draw(_user_parts(images=images, image_urls=image_urls, said=turn == 0))))
        if draw(st.integers(0, 9)) == 0:
            messages.append(SystemMessage(draw(_TEXTS)))
        for _ in range(draw(st.integers(0, 2))):
            messages += draw(_calls_and_results(images=images, image_urls=image_urls))
        if turn + 1 < turns:
            messages.append(draw(_answers(calls=0)))
    return tuple(messages)


@st.composite
def chat_requests(
    draw: st.DrawFn, *, images: bool = True, image_urls: bool = True, output: bool = True
) -> ChatRequest:
    """Any conversation with any options of a request.

    Args:
        draw: of hypothesis.
        images: as for `conversations`.
        image_urls: as for `conversations`.
        output: whether some ask for an answer of a given form.
    """
    names = st.sampled_from(["search", "get_weather", "kb__query"])
    tools = draw(
        st.lists(st.builds(ToolSpec, names, _TEXTS, _SCHEMAS), max_size=2, unique_by=lambda tool: tool.name)
    )
    forms = st.builds(OutputSchema, st.just("facts"), _SCHEMAS)
    return ChatRequest(
        messages=draw(conversations(images=images, image_urls=image_urls)),
        tools=tuple(tools),
        tool_choice=draw(st.sampled_from(["auto", "none", "required", *(tool.name for tool in tools)])),
        max_tokens=draw(st.sampled_from([None, 1, 4096])),
        temperature=draw(st.sampled_from([None, 0.0, 0.7, 1.0])),
        effort=draw(st.sampled_from([None, "off", "low", "medium", "high", "max"])),
        output=draw(st.one_of(st.none(), forms)) if output else None,
        stop=draw(st.sampled_from([(), ("。",), ("END", "\n\n")])),
    )


@st.composite
def _user_parts(
    draw: st.DrawFn, *, images: bool, image_urls: bool, said: bool = False
) -> tuple[UserPart, ...]:
    parts: list[UserPart] = [TextPart(draw(_SAID if said else _TEXTS))]
    if images and draw(st.integers(0, 3)) == 0:
        parts.append(ImagePart(_PNG))
    if images and image_urls and draw(st.integers(0, 9)) == 0:
        parts.append(ImagePart(url="https://example.com/猫.png"))
    if draw(st.integers(0, 4)) == 0:
        parts.append(TextPart(draw(_TEXTS)))
    return tuple(parts)


@st.composite
def _calls_and_results(draw: st.DrawFn, *, images: bool, image_urls: bool) -> tuple[Message, ...]:
    answer = draw(_answers(calls=draw(st.integers(1, 3))))
    results = [
        ToolMessage(
            call.id, draw(_user_parts(images=images, image_urls=image_urls)), failed=draw(st.booleans())
        )
        for call in answer.tool_calls
    ]
    if draw(st.integers(0, 9)) == 0:
        results.pop()
    return answer, *draw(st.permutations(results))


@st.composite
def _answers(draw: st.DrawFn, *, calls: int) -> AssistantMessage:
    provider = draw(st.sampled_from(sorted(_MODELS)))
    parts: list[AssistantPart] = []
    if draw(st.booleans()):
        parts += _reasoning(provider, draw(_SAID))
    if text := draw(_TEXTS if calls else _SAID):
        parts.append(TextPart(text))
    if provider == "anthropic" and draw(st.booleans()):
        parts.append(ReasoningPart("", "redacted_thinking", {"data": REDACTED}))
    prefix = draw(
        st.sampled_from(["call_", "toolu_01", "functions.search:", "chatcmpl-tool-" + "9" * 40, "调用"])
    )
    start = draw(st.sampled_from([0, draw(st.integers(1, 10**6))]))  # some servers count anew in each answer
    for number in range(calls):
        parts.append(_call(draw, provider, f"{prefix}{start + number}", first=number == 0))
    return AssistantMessage(tuple(parts), provider=provider, model=_MODELS[provider])


def _call(draw: st.DrawFn, provider: str, id_: str, *, first: bool) -> ToolCallPart:
    name = draw(_NAMES)
    opaque: dict[str, Any] = {}
    if provider == "gemini" and first:
        name = "search"  # the vendor signs the name, too: one that is changed on its way is no longer signed
        opaque = {"extra_content": {"google": {"thought_signature": gemini_signature(name)}}}
    if draw(st.integers(0, 5)) == 0:
        return ToolCallPart(id_, name, unreadable=draw(_UNREADABLE), opaque=opaque)
    arguments: dict[str, Any] = json.loads(json.dumps(draw(_ARGUMENTS)))
    return ToolCallPart(id_, name, arguments, opaque=opaque)


def _reasoning(provider: str, text: str) -> list[AssistantPart]:
    """A thought as a provider's answer holds it; some providers keep theirs to themselves."""
    match provider:
        case "anthropic":
            return [ReasoningPart(text, "thinking", {"signature": anthropic_signature(text)})]
        case "minimax":
            detail = {"type": "reasoning.text", "id": "reasoning-text-1", "index": 0, "text": text}
            return [ReasoningPart(text, "reasoning_details", {"reasoning_details": [detail]})]
        case _ if field := _FIELDS.get(provider):
            return [ReasoningPart(text, field)]
        case _:
            return []
