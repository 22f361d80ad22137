"""Which conversations Anthropic takes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import cast

from loom_core.testing.vendors.anthropic_blocks import check_block
from loom_core.testing.vendors.json_fields import Json, mappings
from loom_core.testing.vendors.memory import Memory
from loom_core.testing.vendors.refusal import Refused

__all__ = ["check_conversation", "prefix_of", "turns_of"]


def _check_system(system: object) -> None:
    if system is None or isinstance(system, str):
        return
    for number, block in enumerate(mappings({"system": system}, "system")):
        if block.get("type") != "text":
            raise Refused(f"system.{number}.type: Input should be 'text'")
        if not str(block.get("text", "")):
            raise Refused("system: text content blocks must be non-empty")


def check_conversation(body: Json, memory: Memory, *, thinking: str, bound: bool) -> None:
    """Refuse a conversation that Anthropic refuses.

    Args:
        body: the request.
        memory: what the server said before.
        thinking: how the model thinks.
        bound: whether thoughts have to stand where they were thought.

    Raises:
        Refused: why.
    """
    _check_system(body.get("system"))
    given = mappings(body, "messages")
    if not given:
        raise Refused("messages: at least one message is required")
    for number, message in enumerate(given):
        if unknown := sorted(set(message) - {"role", "content"}):
            raise Refused(f"messages.{number}.{unknown[0]}: Extra inputs are not permitted")
        role = message.get("role")
        if role not in {"user", "assistant", "system"}:
            raise Refused(f"messages.{number}.role: Input should be 'user', 'assistant' or 'system'")
        if number == 0 and role != "user":
            raise Refused('messages: first message must use the "user" role')
        if role == "system" and (given[number - 1]["role"] != "user" or not _before_assistant(given, number)):
            raise Refused(f"messages.{number}: a system message follows a user turn and ends it")
    if given[-1]["role"] == "assistant":
        raise Refused(
            "This model does not support assistant message prefill. The conversation must end with a user "
            "message."
        )
    turns = list(turns_of(given))
    seen: set[str] = set()
    waiting: list[str] = []
    for number, (role, blocks) in enumerate(turns):
        for position, block in enumerate(blocks):
            check_block(block, role, f"messages.{number}.content.{position}")
        waiting = _check_pairs(number, role, blocks, waiting, seen)
    if waiting:
        raise _unanswered(len(turns) - 1, waiting)
    if bound:
        _check_places(body, turns, memory)
    _check_thoughts(turns, memory, thinking=thinking)


def prefix_of(body: Json, turns: Sequence[tuple[str, list[Json]]]) -> str:
    """What a thought is bound to: all that stands before the turn it is in."""
    return json.dumps([body.get("system"), body.get("tools"), turns], sort_keys=True)


def _check_places(body: Json, turns: Sequence[tuple[str, list[Json]]], memory: Memory) -> None:
    for number, (_, blocks) in enumerate(turns):
        for position, block in enumerate(blocks):
            if block["type"] != "thinking":
                continue
            if not memory.knows_thought(block["signature"], prefix_of(body, turns[:number])):
                raise Refused(
                    f"messages.{number}.content.{position}: Invalid `signature` in `thinking` block. The "
                    "block is bound to a different conversation. Remove the block, or set "
                    '`thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
                )


def _before_assistant(messages: Sequence[Json], number: int) -> bool:
    return number + 1 == len(messages) or messages[number + 1]["role"] == "assistant"


def turns_of(messages: Sequence[Json]) -> Iterator[tuple[str, list[Json]]]:
    """The turns: consecutive messages of one role are one, system messages aside."""
    role, blocks = "", list[Json]()
    for number, message in enumerate(messages):
        if message["role"] == "system":
            _check_system(message.get("content"))
            continue
        if message["role"] != role:
            if blocks:
                yield role, blocks
            role, blocks = cast("str", message["role"]), []
        content: object = message.get("content")
        if not content:
            raise Refused(f"messages.{number}: all messages must have non-empty content")
        blocks += (
            [{"type": "text", "text": content}] if isinstance(content, str) else mappings(message, "content")
        )
    yield role, blocks


def _check_pairs(
    number: int, role: str, blocks: Sequence[Json], waiting: Sequence[str], seen: set[str]
) -> list[str]:
    """Check that calls are answered in the next turn, in front; gives the ids that wait for the next one."""
    results = [cast("str", block["tool_use_id"]) for block in blocks if block["type"] == "tool_result"]
    for id_ in results:
        if id_ not in waiting:
            raise Refused(
                f"messages.{number}.content.0: unexpected `tool_use_id` found in `tool_result` blocks: "
                f"{id_}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous message."
            )
    if len(results) != len(set(results)):
        raise Refused(f"messages.{number}.content: each tool_use must have a single result.")
    if missing := [id_ for id_ in waiting if id_ not in results]:
        raise _unanswered(number - 1, missing)
    if any(block["type"] != "tool_result" for block in blocks[: len(results)]):
        raise Refused(f"messages.{number}.content: tool_result blocks must come before all other content")
    ids = [cast("str", block["id"]) for block in blocks if block["type"] == "tool_use"]
    for id_ in ids:
        if id_ in seen:
            raise Refused(f"messages.{number}: `tool_use` ids must be unique")
        seen.add(id_)
    return ids


def _unanswered(number: int, ids: Sequence[str]) -> Refused:
    return Refused(
        f"messages.{number}: `tool_use` ids were found without `tool_result` blocks immediately after: "
        f"{', '.join(ids)}. Each `tool_use` block must have a corresponding `tool_result` block in the next "
        "message."
    )


def _check_thoughts(turns: Sequence[tuple[str, list[Json]]], memory: Memory, *, thinking: str) -> None:
    """Check that what was thought before calls of the turn that is going on came back whole."""
    if thinking == "disabled":
        return
    start = max(
        number
        for number, (role, blocks) in enumerate(turns)
        if role == "user" and any(block["type"] != "tool_result" for block in blocks)
    )
    for number, (role, blocks) in enumerate(turns):
        if role != "assistant" or number < start:
            continue
        calls = [block for block in blocks if block["type"] == "tool_use"]
        thoughts = [block for block in blocks if block["type"] in {"thinking", "redacted_thinking"}]
        for call in calls:
            if (said := memory.answer(call["id"])) is None:
                continue
            if any(block not in thoughts for block in said["thoughts"]):
                raise Refused(
                    f"messages.{number}.content: `thinking` or `redacted_thinking` blocks in the latest "
                    "assistant message cannot be modified. These blocks must remain as they were in the "
                    "original response."
                )
        # Later answers of a turn begin without one where the model did not think between its calls.
        if thinking == "enabled" and number == start + 1 and calls and blocks[0] not in thoughts:
            raise Refused(
                f"messages.{number}.content.0.type: Expected `thinking` or `redacted_thinking`, but found "
                f"`{blocks[0]['type']}`. When `thinking` is enabled, a final `assistant` message must start "
                "with a thinking block (preceeding the lastmost set of `tool_use` and `tool_result` blocks)."
            )
