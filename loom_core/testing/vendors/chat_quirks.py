"""What is peculiar to single vendors of chat-completions: when their models think, and what they refuse."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import TypeAlias, cast

from loom_core.testing.vendors.json_fields import Json, mapping, mappings
from loom_core.testing.vendors.json_schema_rules import check_openai_strict
from loom_core.testing.vendors.memory import Memory, signature
from loom_core.testing.vendors.refusal import Refused

__all__ = ["GEMINI_DUMMY_SIGNATURES", "QUIRKS", "gemini_signature"]

Quirk: TypeAlias = Callable[[Json, bool, Memory], None]
"""Refuses a request of a vendor, given whether the model thinks and what the server said before."""

GEMINI_DUMMY_SIGNATURES = frozenset(
    {"skip_thought_signature_validator", "context_engineering_is_the_way_to_go"}
)
"""For calls that Gemini did not make (ai.google.dev/gemini-api/docs/thought-signatures)."""

_SAMPLING = (
    "temperature",
    "top_p",
    "presence_penalty",
    "frequency_penalty",
    "logprobs",
    "top_logprobs",
    "logit_bias",
)


def gemini_signature(name: str) -> str:
    """What Gemini signs a call of a tool with."""
    return signature("gemini", name)


def _assistants(body: Json) -> Iterator[tuple[int, Json]]:
    for number, message in enumerate(mappings(body, "messages")):
        if message["role"] == "assistant":
            yield number, message


def _turn_start(body: Json) -> int:
    """The number of the last message of the user: what follows belongs to the turn that is going on."""
    messages = mappings(body, "messages")
    return max((number for number, message in enumerate(messages) if message["role"] == "user"), default=-1)


def _check_effort(body: Json, known: str, *, status: int = 400, code: str = "") -> None:
    effort = body.get("reasoning_effort")
    if effort is not None and effort not in known.split():
        raise Refused(
            f"Unsupported value: 'reasoning_effort' does not support {effort!r} with this model. Supported "
            f"values are: {known}.",
            status=status,
            code=code,
            param="reasoning_effort",
        )


def _check_switch(body: Json, known: str, *, code: str = "") -> None:
    switch = mapping(body, "thinking").get("type")
    if "thinking" in body and switch not in known.split():
        raise Refused(
            f"Invalid thinking: {switch!r}; this model takes {known or 'none'}.", code=code, param="thinking"
        )


def _openai(body: Json, thinking: bool, memory: Memory) -> None:
    model: str = body["model"]
    if not fnmatchcase(model, "gpt-4*"):
        if "max_tokens" in body:
            raise Refused(
                "Unsupported parameter: 'max_tokens' is not supported with this model. Use "
                "'max_completion_tokens' instead.",
                code="unsupported_parameter",
                param="max_tokens",
            )
        _check_effort(body, "none minimal low medium high xhigh max", code="unsupported_value")
        for name in _SAMPLING if thinking else ():
            if body.get(name) is not None and not (name == "temperature" and body[name] == 1):
                raise Refused(
                    f"Unsupported value: '{name}' is not supported with this model.",
                    code="unsupported_value",
                    param=name,
                )
        if body.get("stop") and fnmatchcase(model, "o[34]*"):
            raise Refused(
                "Unsupported parameter: 'stop' is not supported with this model.",
                code="unsupported_parameter",
                param="stop",
            )
    elif "reasoning_effort" in body:
        raise Refused("Unrecognized request argument supplied: reasoning_effort", param="reasoning_effort")
    # 5.6 thinks by itself, so that it has to be told not to; the others do not (openai/openai-openapi#541).
    said = body.get("reasoning_effort", "medium" if fnmatchcase(model, "gpt-5.6*") else "none")
    if body.get("tools") and fnmatchcase(model, "gpt-5.[456]*") and said != "none":
        raise Refused(
            f"Function tools with reasoning_effort are not supported for {model} in /v1/chat/completions. To "
            "use function tools, use /v1/responses or set reasoning_effort to 'none'.",
            param="reasoning_effort",
        )
    for tool in mappings(body, "tools"):
        function = mapping(tool, "function")
        if function.get("strict"):
            check_openai_strict(function.get("parameters", {}), where=f"function '{function['name']}'")
    format_ = mapping(body, "response_format")
    if format_.get("type") == "json_schema" and format_["json_schema"].get("strict"):
        check_openai_strict(
            format_["json_schema"]["schema"], where=f"response_format '{format_['json_schema']['name']}'"
        )


def _deepseek(body: Json, thinking: bool, memory: Memory) -> None:
    _check_switch(body, "enabled disabled")
    _check_effort(body, "low medium high xhigh max")
    if not (thinking and body.get("tools")):
        return
    for _, message in _assistants(body):
        if not isinstance(message.get("reasoning_content"), str):
            raise Refused("The `reasoning_content` in the thinking mode must be passed back to the API.")


def _qwen(body: Json, thinking: bool, memory: Memory) -> None:
    model: str = body["model"]
    if type(body.get("enable_thinking", False)) is not bool:
        raise Refused("The parameter enable_thinking must be a boolean.", param="enable_thinking")
    only = fnmatchcase(model, "qwq*") or "-thinking" in model
    if only and body.get("enable_thinking") is False:
        raise Refused(
            "The value of the enable_thinking parameter is restricted to True.", param="enable_thinking"
        )
    if only and not body.get("stream"):
        raise Refused(
            "This model only support stream mode, please enable the stream parameter to access the model."
        )
    if fnmatchcase(model, "qwen3.8*"):
        _check_effort(body, "low medium high")
        if "thinking_budget" in body:
            raise Refused("thinking_budget is not supported by this model.", param="thinking_budget")
    elif "reasoning_effort" in body:
        raise Refused("reasoning_effort is not supported by this model.", param="reasoning_effort")


def _gemini(body: Json, thinking: bool, memory: Memory) -> None:
    if fnmatchcase(body["model"].removeprefix("models/"), "gemini-3*"):
        _check_effort(body, "minimal low medium high")
    start = _turn_start(body)
    for number, message in _assistants(body):
        for position, call in enumerate(mappings(message, "tool_calls")):
            google = mapping(mapping(call, "extra_content"), "google")
            signed = google.get("thought_signature")
            name: str = call["function"]["name"]
            if signed is None:
                # Parallel calls are signed by the first of them; earlier turns are not looked at.
                if position == 0 and number > start:
                    raise Refused(
                        "Function call is missing a thought_signature in functionCall parts. This is "
                        "required for tools to work correctly, and missing thought_signature may "
                        "lead to degraded model performance. Additional data, function call "
                        f"`default_api:{name}` , position {number}."
                    )
            elif signed not in GEMINI_DUMMY_SIGNATURES and signed != gemini_signature(name):
                raise Refused("Thought signature is not valid.")


def _kimi(body: Json, thinking: bool, memory: Memory) -> None:
    model: str = body["model"]
    if "thinking" in body and "reasoning_effort" in body:
        raise Refused("cannot specify both 'thinking' and 'reasoning_effort'")
    _check_switch(body, "enabled disabled" if fnmatchcase(model, "kimi-k2.[56]*") else "enabled")
    if fnmatchcase(model, "kimi-k[3-9]*"):
        _check_effort(body, "low high max")
    if model.startswith("kimi-"):
        fixed = {"temperature": 1.0 if thinking else 0.6, "top_p": 0.95}
        for name, value in fixed.items():
            if body.get(name) is not None and body[name] != value:
                raise Refused(f"invalid {name}: only {value:g} is allowed for this model", param=name)
    for tool in mappings(body, "tools"):
        if "strict" in tool["function"]:
            raise Refused("Invalid request: tools.function.strict is not supported", param="tools")
    for number, message in _assistants(body) if thinking else ():
        if message.get("tool_calls") and not message.get("reasoning_content"):
            raise Refused(
                "thinking is enabled but reasoning_content is missing in assistant tool call message at "
                f"index {number}"
            )


def _doubao(body: Json, thinking: bool, memory: Memory) -> None:
    _check_switch(body, "enabled disabled auto")
    _check_effort(body, "minimal low medium high")
    off = mapping(body, "thinking").get("type") == "disabled"
    if off and body.get("reasoning_effort", "minimal") != "minimal":
        raise Refused(
            "reasoning_effort must be minimal where thinking is disabled.", param="reasoning_effort"
        )


def _zhipu(body: Json, thinking: bool, memory: Memory) -> None:
    newest = fnmatchcase(body["model"], "glm-5.3*")
    _check_switch(body, "enabled" if newest else "enabled disabled", code="1210")
    if newest:
        _check_effort(body, "low high max", code="1210")
    elif "reasoning_effort" in body:
        raise Refused("API 调用参数有误，请检查文档。(reasoning_effort)", code="1210")
    for number, message in _assistants(body):
        calls = mappings(message, "tool_calls")
        if not message.get("content") and not calls:
            raise Refused(f"messages[{number}]:content和tool_calls 字段不能同时为空")
        for call in calls if thinking and number > _turn_start(body) else ():
            said = memory.answer(call["id"])
            if said is not None and message.get("reasoning_content") != said.get("reasoning_content"):
                raise Refused(f"messages[{number}]: reasoning_content 与返回的内容不一致")


def _minimax(body: Json, thinking: bool, memory: Memory) -> None:
    temperature = body.get("temperature")
    if temperature is not None and not 0 < temperature <= 1:
        raise Refused("invalid params, temperature must be in (0, 1]", param="temperature")
    for _, message in _assistants(body):
        for call in mappings(message, "tool_calls"):
            said = memory.answer(call["id"])
            if said is None:
                continue
            for name in ("content", "reasoning_details"):
                if (message.get(name) or "") != (said.get(name) or ""):
                    raise Refused(
                        f"invalid params, the message with tool calls must come back complete: {name}"
                    )


def _ollama(body: Json, thinking: bool, memory: Memory) -> None:
    model: str = body["model"]
    _check_effort(body, "none low medium high max")
    if body.get("reasoning_effort", "none") != "none" and not model.startswith("qwen3"):
        raise Refused(f'"{model}" does not support thinking')
    if body.get("tools") and fnmatchcase(model, "gemma3*"):
        raise Refused(f"registry.ollama.ai/library/{model} does not support tools")


def _vllm(body: Json, thinking: bool, memory: Memory) -> None:
    _check_effort(body, "none minimal low medium high xhigh max")
    previous = ""
    for number, message in enumerate(mappings(body, "messages")):
        # Templates of many models raise this; those of Qwen do not.
        if body["model"].startswith("plain/") and message["role"] == previous == "user":
            raise Refused(f"Conversation roles must alternate user/assistant/user/assistant/... ({number})")
        previous = cast("str", message["role"])


QUIRKS: Mapping[str, tuple[Quirk, ...]] = MappingProxyType(
    {
        "openai": (_openai,),
        "deepseek": (_deepseek,),
        "qwen": (_qwen,),
        "gemini": (_gemini,),
        "kimi": (_kimi,),
        "doubao": (_doubao,),
        "zhipu": (_zhipu,),
        "minimax": (_minimax,),
        "ollama": (_ollama,),
        "vllm": (_vllm,),
        "gpustack": (_vllm,),
    }
)
"""By vendor."""
