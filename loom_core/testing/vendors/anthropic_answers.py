"""Answers in Anthropic's format, whole and as streams."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from loom_core.testing.vendors.anthropic_blocks import REDACTED, anthropic_signature
from loom_core.testing.vendors.anthropic_conversations import prefix_of, turns_of
from loom_core.testing.vendors.json_fields import Json, mappings
from loom_core.testing.vendors.memory import Memory
from loom_core.testing.vendors.script import Tokens, Turn

__all__ = ["AnthropicAnswer"]


class AnthropicAnswer:
    """One answer."""

    def __init__(self, body: Json, turn: Turn, memory: Memory) -> None:
        self._turn = turn
        self._blocks = list(self._made(memory))
        thoughts = [block for block in self._blocks if block["type"].endswith("thinking")]
        prefix = prefix_of(body, list(turns_of(mappings(body, "messages"))))
        for block in self._blocks:
            if block["type"] == "thinking":
                memory.keep_thought(block["signature"], prefix)
            if block["type"] == "tool_use":
                memory.keep(block["id"], {"thoughts": thoughts})
        self._head = {
            "id": memory.new_id("msg_"),
            "type": "message",
            "role": "assistant",
            "model": body["model"],
        }
        self._finish = turn.finish or ("tool_use" if turn.calls else "end_turn")
        self._usage = self._counted(turn.usage or Tokens(0, 0))

    def whole(self) -> Json:
        """The answer at once."""
        content = [
            {name: value for name, value in block.items() if name != "written"} for block in self._blocks
        ]
        answer = {**self._head, "content": content, "stop_reason": self._finish, "stop_sequence": None}
        return answer if self._turn.usage is None else {**answer, "usage": self._usage}

    def frames(self) -> list[bytes]:
        """The answer as the events of a stream."""
        frames = [_frame(event) for event in self._events()]
        if self._turn.stream_error:
            error = {"type": "overloaded_error", "message": self._turn.stream_error}
            return [*frames[: len(frames) // 2], _frame({"type": "error", "error": error})]
        return frames

    def _made(self, memory: Memory) -> Iterator[dict[str, Any]]:
        turn = self._turn
        if turn.reasoning:
            signed = anthropic_signature(turn.reasoning)
            yield {"type": "thinking", "thinking": turn.reasoning, "signature": signed}
        if turn.redacted:
            yield {"type": "redacted_thinking", "data": REDACTED}
        if turn.text:
            yield {"type": "text", "text": turn.text}
        for call in turn.calls:
            written = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
            value: Json = {} if isinstance(call.arguments, str) else call.arguments
            id_ = memory.new_id("toolu_")
            yield {"type": "tool_use", "id": id_, "name": call.name, "input": value, "written": written}

    def _events(self) -> Iterator[Json]:
        start: Json = {**self._head, "content": [], "stop_reason": None, "stop_sequence": None}
        # The format has no room for an answer without these; it begins with what went in.
        usage = (
            {**self._usage, "output_tokens": 1}
            if self._turn.usage
            else {"input_tokens": 0, "output_tokens": 0}
        )
        yield {"type": "message_start", "message": {**start, "usage": usage}}
        for index, block in enumerate(self._blocks):
            yield {"type": "content_block_start", "index": index, "content_block": _opened(block)}
            if index == 0:
                yield {"type": "ping"}
            for delta in self._deltas(block):
                yield {"type": "content_block_delta", "index": index, "delta": delta}
            yield {"type": "content_block_stop", "index": index}
        end: dict[str, Any] = {
            "type": "message_delta",
            "delta": {"stop_reason": self._finish, "stop_sequence": None},
        }
        if self._turn.usage is not None:
            counted = ("output_tokens", "output_tokens_details")
            end["usage"] = {name: self._usage[name] for name in counted if name in self._usage}
        yield end
        yield {"type": "message_stop"}

    def _deltas(self, block: Json) -> Iterator[Json]:
        match block["type"]:
            case "thinking":
                for piece in self._pieces(block["thinking"]):
                    yield {"type": "thinking_delta", "thinking": piece}
                yield {"type": "signature_delta", "signature": block["signature"]}
            case "text":
                for piece in self._pieces(block["text"]):
                    yield {"type": "text_delta", "text": piece}
            case "tool_use":
                yield {"type": "input_json_delta", "partial_json": ""}
                for piece in self._pieces(block["written"]):
                    yield {"type": "input_json_delta", "partial_json": piece}
            case _:
                return

    def _pieces(self, text: str) -> Iterator[str]:
        for start in range(0, len(text), self._turn.piece):
            yield text[start : start + self._turn.piece]

    def _counted(self, tokens: Tokens) -> dict[str, Any]:
        usage: dict[str, Any] = {
            "input_tokens": tokens.input - tokens.cached,
            "cache_creation_input_tokens": 0,
            "cache_read_input_tokens": tokens.cached,
            "output_tokens": tokens.output,
            "service_tier": "standard",
        }
        if tokens.reasoning:
            usage["output_tokens_details"] = {"thinking_tokens": tokens.reasoning}
        return usage


def _opened(block: Json) -> Json:
    match block["type"]:
        case "thinking":
            return {"type": "thinking", "thinking": "", "signature": ""}
        case "text":
            return {"type": "text", "text": ""}
        case "tool_use":
            return {"type": "tool_use", "id": block["id"], "name": block["name"], "input": {}}
        case _:
            return block


def _frame(event: Json) -> bytes:
    data = json.dumps(event, ensure_ascii=False).encode("utf-8", "replace")
    return f"event: {event['type']}\ndata: ".encode() + data + b"\n\n"
