"""Specs of the vendors that Loom knows by name, as data, as of November 2026."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from types import MappingProxyType
from typing import Any, Literal, get_args

from loom_core.llm.interface import Effort

__all__ = [
    "ANTHROPIC",
    "CUSTOM",
    "DEEPSEEK",
    "DOUBAO",
    "GEMINI",
    "GPUSTACK",
    "KIMI",
    "MINIMAX",
    "OLLAMA",
    "OPENAI",
    "OPENAI_COMPATIBLE",
    "QWEN",
    "VENDORS",
    "VLLM",
    "ZHIPU",
    "AuthStyle",
    "JsonMode",
    "ModelRule",
    "ProviderSpec",
    "Replay",
    "SchemaDialect",
    "Wire",
]


Wire = Literal["chat_completions", "anthropic_messages"]
"""The format of requests and answers."""

Replay = Literal["never", "same_turn", "with_tools", "always"]
"""Which reasoning of earlier responses is replayed to the vendor: none; that of the current turn, which
begins with the last user message; all, if the request has tools; all."""

AuthStyle = Literal["bearer", "x-api-key"]
"""Which header holds the key: `Authorization`, or `x-api-key`. In Anthropic's format, the latter also means
the version of 2023-06-01, unless a header says another."""

JsonMode = Literal["json_schema", "json_object", "tool", "prompt"]
"""How structured output is requested: by its schema; as any JSON object, with the schema in the instructions;
by a required tool call; by instructions alone."""

SchemaDialect = Literal["full", "inline", "gemini"]
"""Dialect of JSON Schema: everything; everything but `$ref`; the subset that Gemini knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRule:
    """Overrides for some models of a vendor.

    Attributes:
        pattern: glob pattern of the models: `kimi-k2.[56]*`; case-insensitive.
        changes: attributes of `ProviderSpec`, with their values for these models.
    """

    pattern: str
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSpec:
    """Spec of a vendor: its address, and the parameters that its models support.

    Attributes:
        name: its name in configurations; reasoning goes back to a provider of the same name only.
        title: its display name.
        wire: see `Wire`.
        base_url: address of its API; empty if the user has to give it.
        model: the default model; empty if the user has to choose.
        key_variable: the environment variable that holds the key.
        needs_key: whether it requires a key. Only a required key is looked up in the keyring, too.
        auth_style: see `AuthStyle`.
        docs: the vendor's documentation page.
        max_tokens_field: name of the field that limits the response.
        max_tokens_required: whether this field is required.
        reasoning_fields: fields with reasoning in responses; the first one present counts.
        replay: see `Replay`.
        replay_field: field for replayed reasoning; empty for the field it came in.
        replay_filler: value of that field if it is required and there is no reasoning: in responses with tool
            calls, or in all if `replay` is `with_tools`. None leaves it out.
        efforts: body fields for each `Effort` that the vendor supports; a missing one becomes the next one
            present, upwards first. Empty if there is no choice.
        tool_effort: the effort of every request with tools, if the vendor supports no other there.
        thinks: whether the model thinks by default.
        temperature: whether it is supported: always; never; or only while the model does not think.
        lowest_temperature: the minimum temperature, if 0 is refused.
        json_mode: see `JsonMode`.
        json_mode_thinking: the same, while the model thinks; None for no difference.
        supports_tools: whether the model calls tools; else it gets them by prompt (`prompted_tools`).
        tool_choices: those it supports of `auto`, `none`, `required`, `named`.
        tool_choices_thinking: the same, while the model thinks; None for no difference.
        strict_tools: whether tools may be marked `strict`.
        stops: whether stop sequences are supported.
        schema: see `SchemaDialect`.
        images: whether users may send images, as bytes.
        image_urls: whether images may be given by URL.
        tool_images: whether tool results may have images.
        systems: whether system messages may be several, and anywhere; else they are merged into one.
        call_extras: fields of a tool call that go back with it as they came, such as `extra_content`.
        call_filler: such fields for the first call of a response, if they are required and missing, as
            another model made the call.
        think_tags: whether reasoning may be in the text, between `<think>` and `</think>`.
        window: context window in tokens, conversation and response together; 0 if unknown.
        shortens: whether it silently truncates a conversation that is too long. If it read much less than was
            sent, a warning is logged.
        stream_only: whether it only streams, at least while the model thinks.
        stream_usage: whether `stream_options.include_usage` is sent.
        body: fields of every request, unless its effort overrides them.
        headers: headers of every request.
        models: overrides for some models; the first rule that matches counts.
    """

    name: str
    title: str
    wire: Wire = "chat_completions"
    base_url: str = ""
    model: str = ""
    key_variable: str = ""
    needs_key: bool = True
    auth_style: AuthStyle = "bearer"
    docs: str = ""
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    max_tokens_required: bool = False
    reasoning_fields: tuple[str, ...] = ("reasoning_content", "reasoning")
    replay: Replay = "never"
    replay_field: str = ""
    replay_filler: str | None = None
    efforts: Mapping[Effort, Mapping[str, Any]] = field(default_factory=dict[Effort, Mapping[str, Any]])
    tool_effort: Effort | None = None
    thinks: bool = False
    temperature: Literal["always", "never", "without_thinking"] = "always"
    lowest_temperature: float = 0.0
    json_mode: JsonMode = "json_object"
    json_mode_thinking: JsonMode | None = None
    supports_tools: bool = True
    tool_choices: frozenset[str] = frozenset({"auto", "none", "required", "named"})
    tool_choices_thinking: frozenset[str] | None = None
    strict_tools: bool = False
    stops: bool = True
    schema: SchemaDialect = "full"
    images: bool = True
    image_urls: bool = True
    tool_images: bool = False
    systems: bool = False
    call_extras: tuple[str, ...] = ()
    call_filler: Mapping[str, Any] = field(default_factory=dict[str, Any])
    think_tags: bool = False
    window: int = 0
    shortens: bool = False
    stream_only: bool = False
    stream_usage: bool = True
    body: Mapping[str, Any] = field(default_factory=dict[str, Any])
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    models: tuple[ModelRule, ...] = ()

    def nearest(self, effort: Effort | None) -> Effort | None:
        """Return the nearest supported effort: the next one upwards, else downwards.

        None if none is requested, or there is no choice.
        """
        if effort is None:
            return None
        steps: tuple[Effort, ...] = get_args(Effort)
        wished = steps.index(effort)
        return next((step for step in (*steps[wished:], *steps[:wished][::-1]) if step in self.efforts), None)

    def thinking(self, effort: Effort | None) -> bool:
        """Return whether the model thinks at an effort."""
        if effort == "off" and "off" in self.efforts:
            return False
        return self.thinks or (effort not in {None, "off"} and bool(self.efforts))

    def for_model(self, model: str) -> ProviderSpec:
        """Return the spec for one model."""
        for rule in self.models:
            if fnmatchcase(model.casefold(), rule.pattern.casefold()):
                return replace(self, models=(), **rule.changes)
        return self


def _by_effort(**names: str) -> dict[Effort, Mapping[str, Any]]:
    """Return efforts that only set the field `reasoning_effort`."""
    efforts: dict[str, Mapping[str, Any]] = {ours: {"reasoning_effort": name} for ours, name in names.items()}
    return efforts  # pyright: ignore[reportReturnType]


_THINKING_OFF = {"thinking": {"type": "disabled"}}
_THINKING_ON = {"thinking": {"type": "enabled"}}
_ON_OFF: Mapping[Effort, Mapping[str, Any]] = {"off": _THINKING_OFF, "high": _THINKING_ON}
_LOW_TO_HIGH = _by_effort(low="low", medium="medium", high="high")
_UNFORCED = frozenset({"auto", "none"})

OPENAI = ProviderSpec(
    name="openai",
    title="OpenAI",
    base_url="https://api.openai.com/v1",
    model="gpt-5.6-terra",
    key_variable="OPENAI_API_KEY",
    docs="https://platform.openai.com/docs/api-reference/chat",
    max_tokens_field="max_completion_tokens",
    efforts=_by_effort(off="none", low="low", medium="medium", high="high", max="max"),
    # "Function tools with reasoning_effort are not supported … in /v1/chat/completions", since gpt-5.4.
    tool_effort="off",
    thinks=True,
    temperature="without_thinking",
    json_mode="json_schema",
    strict_tools=True,
    systems=True,
    models=(
        ModelRule(
            pattern="gpt-[34]*",
            changes={"efforts": {}, "tool_effort": None, "thinks": False, "temperature": "always"},
        ),
        ModelRule(
            pattern="gpt-5.[123]*",
            changes={
                "efforts": _by_effort(off="none", low="low", medium="medium", high="high"),
                "tool_effort": None,
            },
        ),
        ModelRule(pattern="gpt-5-*", changes={"efforts": _LOW_TO_HIGH, "tool_effort": None}),
        ModelRule(pattern="gpt-5", changes={"efforts": _LOW_TO_HIGH, "tool_effort": None}),
        ModelRule(pattern="o1*", changes={"efforts": _LOW_TO_HIGH, "tool_effort": None}),
        ModelRule(pattern="o[34]*", changes={"efforts": _LOW_TO_HIGH, "tool_effort": None, "stops": False}),
    ),
)

_CLAUDE_STEPS: tuple[Effort, ...] = ("low", "medium", "high", "max")


def _claude(thinking: Mapping[str, Any], **others: Mapping[str, Any]) -> dict[Effort, Mapping[str, Any]]:
    """Return efforts of models with adaptive thinking; `others` are added as they are."""
    steps: dict[Effort, Mapping[str, Any]] = {
        step: {"thinking": thinking, "output_config": {"effort": step}} for step in _CLAUDE_STEPS
    }
    return {**others, **steps}  # pyright: ignore[reportReturnType]


# Since Claude 5.1, thinking is bound to its prefix. If the prefix has changed, as in a shortened
# conversation, the thinking is to be dropped: otherwise the whole request is refused. (`between_tools`, the
# least that Sonnet 5.5 thinks, has no field for that; so the least is a low effort here.)
# https://platform.claude.com/docs/build-with-claude/preserved-thinking/prefix-checks
_ADAPTIVE_BOUND: Mapping[str, Any] = {
    "type": "adaptive",
    "display": "summarized",
    "block_binding": {"prefix_mismatch_behavior": "drop_block"},
}
_ADAPTIVE: Mapping[str, Any] = {"type": "adaptive", "display": "summarized"}
_BUDGETS: Mapping[Effort, Mapping[str, Any]] = {
    "off": _THINKING_OFF,
    "low": {"thinking": {"type": "enabled", "budget_tokens": 2048}},
    "medium": {"thinking": {"type": "enabled", "budget_tokens": 8192}},
    "high": {"thinking": {"type": "enabled", "budget_tokens": 16384}},
    "max": {"thinking": {"type": "enabled", "budget_tokens": 32000}},
}
_ALL_CHOICES = frozenset({"auto", "none", "required", "named"})
_CLAUDE_5: Mapping[str, Any] = {
    "efforts": _claude(_ADAPTIVE, off=_THINKING_OFF),
    "body": {"thinking": _ADAPTIVE},
    "tool_choices": _ALL_CHOICES,
}
_CLAUDE_4_5: Mapping[str, Any] = {
    "efforts": _BUDGETS,
    "body": {},
    "thinks": False,
    "tool_choices": _ALL_CHOICES,
}
_CLAUDE_4: Mapping[str, Any] = {**_CLAUDE_4_5, "json_mode": "tool", "json_mode_thinking": "prompt"}

ANTHROPIC = ProviderSpec(
    name="anthropic",
    title="Anthropic",
    wire="anthropic_messages",
    base_url="https://api.anthropic.com",
    model="claude-sonnet-5-5",
    key_variable="ANTHROPIC_API_KEY",
    docs="https://platform.claude.com/docs/en/api/messages",
    max_tokens_required=True,
    replay="always",
    efforts=_claude(_ADAPTIVE_BOUND),
    thinks=True,
    temperature="never",
    json_mode="json_schema",
    tool_choices=_UNFORCED,
    tool_choices_thinking=_UNFORCED,
    tool_images=True,
    body={"thinking": _ADAPTIVE_BOUND},
    headers={"anthropic-beta": "thinking-binding-controls-2026-08-01"},
    models=(
        ModelRule(
            pattern="claude-haiku-5-5*",
            changes={
                "efforts": _claude(_ADAPTIVE_BOUND, off=_THINKING_OFF),
                "tool_choices": _ALL_CHOICES,
            },
        ),
        ModelRule(pattern="claude-opus-5", changes=_CLAUDE_5),
        ModelRule(pattern="claude-opus-5-20*", changes=_CLAUDE_5),
        ModelRule(pattern="claude-sonnet-5", changes=_CLAUDE_5),
        ModelRule(pattern="claude-sonnet-5-20*", changes=_CLAUDE_5),
        ModelRule(pattern="claude-*-4-[678]*", changes={**_CLAUDE_5, "body": {}, "thinks": False}),
        ModelRule(pattern="claude-*-4-5*", changes=_CLAUDE_4_5),
        ModelRule(pattern="claude-*-4*", changes=_CLAUDE_4),
        ModelRule(pattern="claude-3-7*", changes=_CLAUDE_4),
        ModelRule(pattern="claude-3*", changes={**_CLAUDE_4, "efforts": {}}),
    ),
)

DEEPSEEK = ProviderSpec(
    name="deepseek",
    title="DeepSeek",
    base_url="https://api.deepseek.com",
    model="deepseek-flash",
    key_variable="DEEPSEEK_API_KEY",
    docs="https://api-docs.deepseek.com/guides/thinking_mode",
    replay="with_tools",
    replay_field="reasoning_content",
    replay_filler="",
    efforts={
        "off": _THINKING_OFF,
        "low": {**_THINKING_ON, "reasoning_effort": "low"},
        "high": {**_THINKING_ON, "reasoning_effort": "high"},
        "max": {**_THINKING_ON, "reasoning_effort": "max"},
    },
    thinks=True,
    temperature="without_thinking",
    tool_choices_thinking=_UNFORCED,
    images=False,
)

QWEN = ProviderSpec(
    name="qwen",
    title="Qwen (Alibaba Cloud Model Studio)",
    base_url="https://dashscope.aliyuncs.com/compatible-mode/v1",
    model="qwen3.8-flash",
    key_variable="DASHSCOPE_API_KEY",
    docs="https://www.alibabacloud.com/help/en/model-studio/deep-thinking",
    # Its chat template reads only the reasoning after the last user message.
    replay="same_turn",
    replay_field="reasoning_content",
    efforts={
        "off": {"enable_thinking": False},
        "low": {"enable_thinking": True, "reasoning_effort": "low"},
        "medium": {"enable_thinking": True, "reasoning_effort": "medium"},
        "high": {"enable_thinking": True, "reasoning_effort": "high"},
    },
    thinks=True,
    json_mode_thinking="prompt",
    tool_choices=frozenset({"auto", "none", "named"}),
    tool_choices_thinking=_UNFORCED,
    schema="inline",
    models=(
        ModelRule(
            pattern="qwen3.[567]*",
            changes={
                "efforts": {
                    "off": {"enable_thinking": False},
                    "low": {"enable_thinking": True, "thinking_budget": 1024},
                    "medium": {"enable_thinking": True, "thinking_budget": 4096},
                    "high": {"enable_thinking": True, "thinking_budget": 16384},
                }
            },
        ),
        ModelRule(pattern="qwq*", changes={"efforts": {}, "stream_only": True, "images": False}),
        ModelRule(pattern="*-thinking*", changes={"efforts": {}, "stream_only": True}),
    ),
)

GEMINI = ProviderSpec(
    name="gemini",
    title="Google Gemini",
    base_url="https://generativelanguage.googleapis.com/v1beta/openai/",
    model="gemini-3.8-flash",
    key_variable="GEMINI_API_KEY",
    docs="https://ai.google.dev/gemini-api/docs/openai",
    # Since Gemini 3, thinking cannot be turned off: https://ai.google.dev/gemini-api/docs/thinking
    efforts=_LOW_TO_HIGH,
    thinks=True,
    json_mode="json_schema",
    schema="gemini",
    image_urls=False,
    call_extras=("extra_content",),
    # What Gemini requires instead of its signature, in calls of other models:
    # https://ai.google.dev/gemini-api/docs/thought-signatures
    call_filler={"extra_content": {"google": {"thought_signature": "skip_thought_signature_validator"}}},
    models=(
        ModelRule(
            pattern="*gemini-2.5-flash*",
            changes={"efforts": _by_effort(off="none", low="low", medium="medium", high="high")},
        ),
        ModelRule(
            pattern="*gemini-3*flash*",
            changes={"efforts": _by_effort(off="minimal", low="low", medium="medium", high="high")},
        ),
    ),
)

KIMI = ProviderSpec(
    name="kimi",
    title="Kimi (Moonshot AI)",
    base_url="https://api.moonshot.ai/v1",
    model="kimi-k3",
    key_variable="MOONSHOT_API_KEY",
    docs="https://platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model",
    replay="always",
    replay_field="reasoning_content",
    replay_filler=" ",
    efforts=_by_effort(low="low", high="high", max="max"),
    thinks=True,
    temperature="never",
    tool_choices=_UNFORCED,
    image_urls=False,
    models=(
        ModelRule(pattern="kimi-k2.[56]*", changes={"efforts": _ON_OFF}),
        ModelRule(pattern="kimi-k2*", changes={"efforts": {}, "images": False}),
        ModelRule(
            pattern="moonshot-v1*",
            changes={
                "efforts": {},
                "thinks": False,
                "temperature": "always",
                "replay": "never",
                "replay_filler": None,
                "images": False,
            },
        ),
    ),
)

DOUBAO = ProviderSpec(
    name="doubao",
    title="Doubao (Volcano Engine Ark)",
    base_url="https://ark.cn-beijing.volces.com/api/v3",
    model="doubao-seed-2-1-pro-260915",
    key_variable="ARK_API_KEY",
    docs="https://www.volcengine.com/docs/82379/1494384",
    replay="same_turn",
    replay_field="reasoning_content",
    efforts=_ON_OFF,
    thinks=True,
)

ZHIPU = ProviderSpec(
    name="zhipu",
    title="Zhipu GLM",
    base_url="https://open.bigmodel.cn/api/paas/v4",
    model="glm-5.3",
    key_variable="ZAI_API_KEY",
    docs="https://docs.bigmodel.cn/cn/guide/capabilities/thinking-mode",
    replay="same_turn",
    replay_field="reasoning_content",
    efforts=_by_effort(low="low", high="high", max="max"),
    thinks=True,
    tool_choices=frozenset({"auto"}),
    schema="inline",
    images=False,
    models=(
        ModelRule(
            pattern="glm-*v*",
            changes={"images": True, "efforts": _ON_OFF},
        ),
        ModelRule(pattern="glm-5.3*", changes={}),
        ModelRule(pattern="glm-*", changes={"efforts": _ON_OFF}),
    ),
)

MINIMAX = ProviderSpec(
    name="minimax",
    title="MiniMax",
    base_url="https://api.minimax.io/v1",
    model="MiniMax-M3",
    key_variable="MINIMAX_API_KEY",
    docs="https://platform.minimax.io/docs/guides/text-m2-function-call",
    reasoning_fields=("reasoning_details", "reasoning_content"),
    replay="always",
    thinks=True,
    json_mode="prompt",
    tool_choices=frozenset({"auto"}),
    images=False,
    think_tags=True,
    lowest_temperature=0.01,
    body={"reasoning_split": True},
)

OLLAMA = ProviderSpec(
    name="ollama",
    title="Ollama",
    base_url="http://localhost:11434/v1",
    key_variable="OLLAMA_API_KEY",
    needs_key=False,
    docs="https://docs.ollama.com/api/openai-compatibility",
    reasoning_fields=("reasoning", "reasoning_content"),
    replay="same_turn",
    efforts=_by_effort(off="none", low="low", medium="medium", high="high"),
    json_mode="json_schema",
    tool_choices=frozenset({"auto"}),
    image_urls=False,
    think_tags=True,
    # The context length is a setting of the server, by default 4k, 32k or 256k tokens by its memory; longer
    # conversations are silently truncated: https://docs.ollama.com/context-length
    window=32_768,
    shortens=True,
    # Ollama refuses tools for models whose template has none: https://ollama.com/search?c=tools
    models=(ModelRule(pattern="gemma[23]*", changes={"supports_tools": False}),),
)

VLLM = ProviderSpec(
    name="vllm",
    title="vLLM",
    base_url="http://localhost:8000/v1",
    key_variable="VLLM_API_KEY",
    needs_key=False,
    docs="https://docs.vllm.ai/en/latest/serving/openai_compatible_server.html",
    reasoning_fields=("reasoning", "reasoning_content"),
    replay="same_turn",
    efforts={
        "off": {"chat_template_kwargs": {"enable_thinking": False}},
        **_by_effort(low="low", medium="medium", high="high"),
    },
    json_mode="json_schema",
    think_tags=True,
)

GPUSTACK = ProviderSpec(
    name="gpustack",
    title="GPUStack",
    key_variable="GPUSTACK_API_KEY",
    docs="https://docs.gpustack.ai/latest/user-guide/openai-compatible-apis/",
    reasoning_fields=("reasoning", "reasoning_content"),
    replay="same_turn",
    efforts=VLLM.efforts,
    think_tags=True,
)

OPENAI_COMPATIBLE = ProviderSpec(
    name="openai_compatible",
    title="your server with OpenAI's interface",
    needs_key=False,
    # A reasoning model may refuse the results of its calls without the reasoning, as DeepSeek does.
    replay="with_tools",
    think_tags=True,
)

CUSTOM = ProviderSpec(
    name="custom", title="your own vendor", needs_key=False, replay="with_tools", think_tags=True
)

VENDORS: Mapping[str, ProviderSpec] = MappingProxyType(
    {
        spec.name: spec
        for spec in (
            OPENAI,
            ANTHROPIC,
            DEEPSEEK,
            QWEN,
            GEMINI,
            OLLAMA,
            KIMI,
            DOUBAO,
            ZHIPU,
            MINIMAX,
            VLLM,
            GPUSTACK,
            OPENAI_COMPATIBLE,
            CUSTOM,
        )
    }
)
"""The specs by name; `mock` is no vendor."""
