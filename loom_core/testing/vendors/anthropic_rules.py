"""Which requests Anthropic takes: version 2026-10-21 of its Messages interface."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import cast

from loom_core.testing.vendors.anthropic_conversations import check_conversation
from loom_core.testing.vendors.json_fields import Json, mapping, mappings
from loom_core.testing.vendors.json_schema_rules import check_anthropic_output
from loom_core.testing.vendors.memory import Memory
from loom_core.testing.vendors.refusal import Refused

__all__ = ["ANTHROPIC_HOSTS", "check_anthropic", "thinking_of"]

ANTHROPIC_HOSTS = ("api.anthropic.com",)
_MODELS = ("claude-*-5", "claude-*-5-[0-9]*", "claude-*-4-[5-9]*")
_VERSIONS = frozenset({"2023-06-01", "2026-10-21"})
_COUNT_FIELDS = frozenset(
    """
    messages model cache_control output_config speed system thinking tool_choice tools user_profile_id
    """.split()
)
_FIELDS = _COUNT_FIELDS | frozenset(
    "max_tokens container diagnostics inference_geo metadata service_tier stop_sequences stream".split()
)
_EFFORTS = frozenset({"low", "medium", "high", "xhigh", "max"})
_THINKING = frozenset({"adaptive", "enabled", "between_tools", "disabled"})
_BINDING = re.compile(r"claude-[a-z]+-5-\d")
_THINKING_FIELDS = frozenset({"type", "display", "budget_tokens", "block_binding"})
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")


def check_anthropic(
    headers: Mapping[str, str], body: Json, memory: Memory, *, counting: bool = False
) -> None:
    """Refuse what Anthropic refuses.

    Args:
        headers: of the request, names in lower case.
        body: of the request.
        memory: what the server said before.
        counting: whether tokens are to be counted only.

    Raises:
        Refused: with Anthropic's status and type of error.
    """
    version = headers.get("anthropic-version")
    if version not in _VERSIONS:
        raise Refused(f"anthropic-version: {version!r} is not a valid version")
    for name in sorted(set(body) - (_COUNT_FIELDS if counting else _FIELDS)):
        raise Refused(f"{name}: Extra inputs are not permitted")
    model = body.get("model")
    if not isinstance(model, str):
        raise Refused("model: Field required")
    if not any(fnmatchcase(model, pattern) for pattern in _MODELS):
        raise Refused(f"model: {model}", status=404)
    if not counting:
        _check_limits(body)
    thinking = _check_thinking(body)
    check_conversation(body, memory, thinking=thinking, bound=_is_bound(headers, body))
    _check_tools(body, thinking=thinking)
    format_ = mapping(body, "output_config").get("format")
    if format_ is not None:
        if format_.get("type") != "json_schema" or not isinstance(format_.get("schema"), Mapping):
            raise Refused("output_config.format: a schema of type 'json_schema' is required")
        check_anthropic_output(format_["schema"])


def thinking_of(body: Json) -> Json:
    """How a request wants the model to think; those of version 5 decide where nothing is said."""
    default = "adaptive" if "-5" in str(body.get("model")).removesuffix("-4-5") else "disabled"
    return mapping(body, "thinking") or {"type": default}


def _is_bound(headers: Mapping[str, str], body: Json) -> bool:
    """Whether thoughts have to stand where they were thought, instead of being dropped elsewhere.

    https://platform.claude.com/docs/build-with-claude/preserved-thinking/prefix-checks
    """
    binding = mapping(thinking_of(body), "block_binding")
    if binding and "thinking-binding-controls-2026-08-01" not in headers.get("anthropic-beta", ""):
        raise Refused(
            "thinking.adaptive.block_binding: Extra inputs are not permitted without its beta header"
        )
    if binding.get("prefix_mismatch_behavior", "reject") not in {"reject", "drop_block"}:
        raise Refused("thinking.adaptive.block_binding.prefix_mismatch_behavior: 'reject' or 'drop_block'")
    return _BINDING.fullmatch(str(body["model"])) is not None and not binding


def _check_limits(body: Json) -> None:
    limit = body.get("max_tokens")
    if limit is None:
        raise Refused("max_tokens: Field required")
    if type(limit) is not int or limit < 1:
        raise Refused("max_tokens: Input should be greater than or equal to 1")
    for stop in cast("list[object]", body.get("stop_sequences") or []):
        if not isinstance(stop, str) or not stop.strip():
            raise Refused("stop_sequences: each stop sequence must contain non-whitespace")


def _check_thinking(body: Json) -> str:
    config = mapping(body, "output_config")
    for name in sorted(set(config) - {"effort", "format"}):
        raise Refused(f"output_config.{name}: Extra inputs are not permitted")
    if config.get("effort") is not None and config["effort"] not in _EFFORTS:
        raise Refused("output_config.effort: Input should be 'low', 'medium', 'high', 'xhigh' or 'max'")
    thinking = thinking_of(body)
    kind = thinking.get("type")
    if kind not in _THINKING:
        raise Refused(f"thinking: Input tag {kind!r} does not match any of the expected tags")
    if unknown := sorted(set(thinking) - _THINKING_FIELDS):
        raise Refused(f"thinking.{kind}.{unknown[0]}: Extra inputs are not permitted")
    if kind == "enabled":
        budget = thinking.get("budget_tokens")
        if type(budget) is not int or budget < 1024:
            raise Refused("thinking.enabled.budget_tokens: Input should be greater than or equal to 1024")
        if budget >= body.get("max_tokens", budget + 1):
            raise Refused("`max_tokens` must be greater than `thinking.budget_tokens`.")
    elif "budget_tokens" in thinking:
        raise Refused(f"thinking.{kind}.budget_tokens: Extra inputs are not permitted")
    return cast("str", kind)


def _check_tools(body: Json, *, thinking: str) -> None:
    names: set[str] = set()
    for number, tool in enumerate(mappings(body, "tools")):
        name, schema = tool.get("name"), mapping(tool, "input_schema")
        known = {"name", "description", "input_schema", "strict", "cache_control", "type", "input_examples"}
        if unknown := sorted(set(tool) - known):
            raise Refused(f"tools.{number}.custom.{unknown[0]}: Extra inputs are not permitted")
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            raise Refused(
                f"tools.{number}.custom.name: String should match pattern '^[a-zA-Z0-9_-]{{1,128}}$'"
            )
        if schema.get("type") != "object":
            raise Refused(f"tools.{number}.custom.input_schema.type: Input should be 'object'")
        if {"oneOf", "allOf", "anyOf"} & schema.keys():
            raise Refused(
                f"tools.{number}.custom.input_schema: input_schema does not support oneOf, allOf, or anyOf "
                "at the top level"
            )
        if name in names:
            raise Refused("tools: Tool names must be unique.")
        names.add(name)
    if body.get("tool_choice") is None:
        return
    choice = mapping(body, "tool_choice")
    kind = choice.get("type")
    if kind not in {"auto", "any", "tool", "none"}:
        raise Refused(f"tool_choice: Input tag {kind!r} does not match any of the expected tags")
    if not names:
        raise Refused("tool_choice may only be specified while providing tools.")
    if kind == "tool" and choice.get("name") not in names:
        raise Refused(f"tool_choice: Tool {choice.get('name')!r} not found in provided tools")
    if kind in {"any", "tool"} and thinking in {"adaptive", "enabled"}:
        raise Refused("Thinking may not be enabled when tool_choice forces tool use.")
