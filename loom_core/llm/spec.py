"""What has to be known of a vendor to speak with its models: data, no code."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args

from loom_core.llm.interface import Effort

__all__ = ["AuthStyle", "JsonMode", "ModelRule", "ProviderSpec", "Replay", "SchemaDialect", "Wire"]

Wire = Literal["chat_completions", "anthropic_messages"]
"""The format of requests and answers."""

Replay = Literal["never", "same_turn", "with_tools", "always"]
"""Which reasoning of earlier answers goes back to the vendor: none; that of the turn that is going on, which
begins with the last user message; all, if the request carries tools; all."""

AuthStyle = Literal["bearer", "x-api-key"]
"""Which header holds the key: `Authorization`, or `x-api-key`. In Anthropic's format, the latter also means
the version of 2023-06-01, unless a header says another."""

JsonMode = Literal["json_schema", "json_object", "tool", "prompt"]
"""How an answer of a given form is asked for: by its schema; by asking for any JSON object, with the schema
in the instructions; by a tool that has to be called; by instructions alone."""

SchemaDialect = Literal["full", "inline", "gemini"]
"""What a vendor takes of JSON Schema: all; all but `$ref`; the part of it that Gemini knows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRule:
    """What is different for some models of a vendor.

    Attributes:
        pattern: the models, as in file names: `kimi-k2.[56]*`. Letter case does not count.
        changes: attributes of `ProviderSpec`, and what they are for these models.
    """

    pattern: str
    changes: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ProviderSpec:
    """A vendor: where its models are, and how they want to be asked.

    Attributes:
        name: what it is called in a configuration; reasoning goes back to a provider of the same name only.
        title: what people call it.
        wire: see `Wire`.
        base_url: where its interface is; empty where the user has to say.
        model: the model that is asked when nobody chooses; empty where the user has to say.
        key_variable: the environment variable that holds the key.
        needs_key: whether it answers nobody without one. Only such a key is looked for in the keyring, too.
        auth_style: see `AuthStyle`.
        docs: the vendor's page that says all this.
        max_tokens_field: how the limit of an answer is called.
        max_tokens_required: whether there has to be one.
        reasoning_fields: where reasoning is looked for in answers, the first one that is there.
        replay: see `Replay`.
        replay_field: what reasoning goes back in; empty for the field it came in.
        replay_filler: what stands in that field where it has to be there and there is nothing to put into it:
            in answers with tool calls, or in all where `replay` is `with_tools`. None leaves it out.
        efforts: fields of the body for each `Effort` that the vendor knows; a missing one becomes the next
            one that is there, upwards first. Empty where there is nothing to choose.
        tool_effort: the effort of every request with tools, where the vendor takes no other there.
        thinks: whether the model thinks when no effort is said.
        temperature: whether it may be sent: always; never; or only while the model does not think.
        lowest_temperature: what is sent for a lower one, where 0 is refused.
        json_mode: see `JsonMode`.
        json_mode_thinking: the same, while the model thinks; None for no difference.
        tool_choices: which it takes: of `auto`, `none`, `required`, `named`.
        tool_choices_thinking: the same, while the model thinks; None for no difference.
        strict_tools: whether tools may be marked `strict`.
        stops: whether texts may be said that end the answer.
        schema: see `SchemaDialect`.
        images: whether users may send images, by bytes.
        image_urls: whether images may be given by address.
        tool_images: whether results of tools may hold images.
        systems: whether there may be several system messages, and elsewhere than in front; else they become
            one.
        call_extras: fields of a tool call that go back with it as they came, such as `extra_content`.
        call_filler: such fields for the first call of an answer, where it has to have them and has none, as
            another model made it.
        think_tags: whether reasoning may stand in the text, between `<think>` and `</think>`.
        window: how many tokens a conversation and its answer may have together; 0 where that is not known.
        shortens: whether it shortens a conversation that is too long, and does not say so. Where it read much
            less than was sent, a warning is logged.
        stream_only: whether answers come piece by piece only, at least while the model thinks.
        stream_usage: whether `stream_options.include_usage` is asked for.
        body: fields that every request has, unless its effort says them otherwise.
        headers: headers that every request has.
        models: what is different for some models; the first rule that fits counts.
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
        """The effort that the vendor knows for one that is wished: the next one upwards, else downwards.

        None where none is wished, or there is nothing to choose.
        """
        if effort is None:
            return None
        steps: tuple[Effort, ...] = get_args(Effort)
        wished = steps.index(effort)
        return next((step for step in (*steps[wished:], *steps[:wished][::-1]) if step in self.efforts), None)

    def thinking(self, effort: Effort | None) -> bool:
        """Whether the model thinks at an effort."""
        if effort == "off" and "off" in self.efforts:
            return False
        return self.thinks or (effort not in {None, "off"} and bool(self.efforts))

    def for_model(self, model: str) -> ProviderSpec:
        """What holds for one model."""
        for rule in self.models:
            if fnmatchcase(model.casefold(), rule.pattern.casefold()):
                return replace(self, models=(), **rule.changes)
        return self
