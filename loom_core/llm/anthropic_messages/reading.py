"""Response reader of the Messages API: chunks of a stream, and the complete response."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast
from uuid import uuid4

from loom_core.llm.interface import LLMResponse, StreamChunk, ToolCallDelta, Usage
from loom_core.llm.message_reading import read_tool_call
from loom_core.llm.messages import AssistantMessage, ReasoningPart, TextPart
from loom_core.llm.transport.sdk_client import MAX_COUNT, MAX_LENGTH, WireReader
from loom_core.sdk_errors import NoAnswerError

if TYPE_CHECKING:
    from loom_core.llm.interface import FinishReason
    from loom_core.llm.messages import AssistantPart
    from loom_core.llm.vendors import ProviderSpec

__all__ = ["MessageReader"]

_FINISH: Mapping[str, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "tool_use": "tool_calls",
    "pause_turn": "paused",
    "refusal": "refused",
    "model_context_window_exceeded": "too_long",
}
_DELTAS: Mapping[str, tuple[str, str]] = {
    "text_delta": ("text", "text"),
    "thinking_delta": ("thinking", "thinking"),
    "signature_delta": ("thinking", "signature"),
    "input_json_delta": ("tool_use", "partial_json"),
}
"""Kinds of deltas: the type of their block, and their field."""

_READ = frozenset({"text", "thinking", "redacted_thinking", "tool_use"})


@dataclass(slots=True)
class _Block:
    """A content block of the response, as received so far."""

    type: str
    fields: Mapping[str, Any]
    call: int = 0
    pieces: list[str] = field(default_factory=list[str])
    signature: str | None = None

    @property
    def text(self) -> str:
        return "".join(self.pieces)


class MessageReader(WireReader):
    """Reads one response: `feed` each event of a stream, or `feed_whole` the message; then call `response`.

    Blocks of unknown types, such as those of server tools, are left out.

    Attributes:
        ended: whether nothing relevant follows.
    """

    def __init__(
        self, spec: ProviderSpec, *, model: str, output_tool: str = "", max_length: int = MAX_LENGTH
    ) -> None:
        super().__init__(spec, model=model, output_tool=output_tool, max_length=max_length)
        self.ended = False
        self._counts: dict[str, int] = {}
        self._blocks: dict[int, _Block] = {}
        self._calls = 0

    def feed(self, event: object) -> list[StreamChunk]:
        """Return the chunks of the next event.

        Raises:
            LLMError: it is not a JSON object, or the response is too long.
            NoAnswerError: it reports an error.
        """
        fields = self._object(event)
        match fields.get("type"):
            case "content_block_delta":
                return self._continue_block(_index(fields), _mapping(fields.get("delta")))
            case "content_block_start":
                return self._start_block(_index(fields), _mapping(fields.get("content_block")))
            case "content_block_stop":
                return self._close_block(_index(fields))
            case "message_start":
                self._head(_mapping(fields.get("message")))
            case "message_delta":
                self._finish = _text(_mapping(fields.get("delta")).get("stop_reason")) or self._finish
                self._count(fields.get("usage"))
            case "message_stop":
                self.ended = True
            case "error":
                raise NoAnswerError(fields)
            case _:  # `ping`, and unknown events
                if fields.get("error"):  # from servers whose native interface is OpenAI's
                    raise NoAnswerError(fields)
        return []

    def feed_whole(self, message: object) -> list[StreamChunk]:
        """Return the chunks of a response without streaming.

        Raises:
            LLMError: it is no response, or too long.
            NoAnswerError: it reports an error.
        """
        fields = self._object(message)
        content = fields.get("content")
        if not isinstance(content, list):
            if fields.get("error"):
                raise NoAnswerError(fields)
            raise self.unreadable("it has no content")
        self._head(fields)
        chunks: list[StreamChunk] = []
        for index, block in enumerate(cast("list[object]", content)):
            chunks += self._start_block(index, _mapping(block))
            chunks += self._close_block(index)
        self._finish = _text(fields.get("stop_reason"))
        self.ended = True
        return chunks

    def response(self) -> LLMResponse:
        """Return the complete response.

        Raises:
            LLMError: it broke off.
        """
        if not (self.ended or self._finish):
            raise self._broken_off()
        message = AssistantMessage(self._parts(), self._spec.name, self._model or self._asked)
        finish = _FINISH.get(self._finish, "other") if self._finish else "stop"
        if finish in {"stop", "tool_calls"}:
            finish = "tool_calls" if message.tool_calls else "stop"
        return LLMResponse(message, finish, _usage(self._counts))

    def _head(self, message: Mapping[str, Any]) -> None:
        self._model = _text(message.get("model"))
        self._count(message.get("usage"))

    def _count(self, usage: object) -> None:
        """Note the reported tokens; the maximum counts: servers report at the start, or at the end."""
        fields = _mapping(usage)
        for name, value in (*fields.items(), *_mapping(fields.get("output_tokens_details")).items()):
            if isinstance(value, int) and 0 < value < MAX_COUNT:
                self._counts[name] = max(value, self._counts.get(name, 0))

    def _start_block(self, index: int, fields: Mapping[str, Any]) -> list[StreamChunk]:
        type_ = _text(fields.get("type"))
        block = self._blocks[index] = _Block(type_, fields)
        if type_ not in _READ:
            return []
        if "signature" in fields:
            block.signature = _text(fields["signature"])
        if type_ == "tool_use":
            return self._start_call(block)
        self._grow(len(_text(fields.get("data"))))
        return self._append_piece(block, _text(fields.get(type_)))

    def _start_call(self, block: _Block) -> list[StreamChunk]:
        id_, name = _text(block.fields.get("id")) or f"call_{uuid4().hex}", _text(block.fields.get("name"))
        block.fields = {**block.fields, "id": id_, "name": name}
        if self._is_output(block):
            return []
        block.call, self._calls = self._calls, self._calls + 1
        return [StreamChunk("tool_call", tool_call=ToolCallDelta(block.call, id_, name))]

    def _continue_block(self, index: int, delta: Mapping[str, Any]) -> list[StreamChunk]:
        type_, name = _DELTAS.get(_text(delta.get("type")), ("", ""))
        if not type_:
            return []
        block = self._blocks.get(index)
        if block is None:  # some servers do not say that a block begins
            block = self._blocks[index] = _Block(type_, {})
        if block.type != type_:
            return []
        piece = _text(delta.get(name))
        if name == "signature":
            block.signature = (block.signature or "") + piece
            self._grow(len(piece))
            return []
        return self._append_piece(block, piece)

    def _close_block(self, index: int) -> list[StreamChunk]:
        """Close a block; a call may have had its arguments in its first event."""
        block = self._blocks.get(index)
        if block is None or block.type != "tool_use" or block.pieces or not block.fields.get("input"):
            return []
        return self._append_piece(block, json.dumps(block.fields["input"], ensure_ascii=False))

    def _append_piece(self, block: _Block, piece: str) -> list[StreamChunk]:
        if not piece:
            return []
        self._grow(len(piece))
        block.pieces.append(piece)
        if block.type == "thinking":
            return [StreamChunk("reasoning", text=piece)]
        if block.type == "tool_use" and not self._is_output(block):
            return [StreamChunk("tool_call", tool_call=ToolCallDelta(block.call, arguments=piece))]
        return [StreamChunk("text", text=piece)]

    def _grow(self, letters: int) -> None:
        self._length += letters
        if self._length > self._max_length:
            raise self._too_long()

    def _is_output(self, block: _Block) -> bool:
        return bool(self._output_tool) and block.fields.get("name") == self._output_tool

    def _parts(self) -> tuple[AssistantPart, ...]:
        """Return the parts in order; the arguments of a called output tool become the only text."""
        blocks = [block for block in self._blocks.values() if block.type in _READ]
        answer = next(
            (block for block in blocks if block.type == "tool_use" and self._is_output(block)), None
        )
        parts: list[AssistantPart] = []
        for block in blocks:
            if block.type == "tool_use" and self._is_output(block):
                if block is answer:
                    parts.append(TextPart(block.text or "{}"))
            elif block.type != "text" or (answer is None and block.pieces):
                parts.append(_part(block))
        return tuple(parts)

    def _object(self, value: object) -> Mapping[str, Any]:
        if not isinstance(value, Mapping):
            raise self.unreadable("it is not a JSON object")
        return cast("Mapping[str, Any]", value)


def _part(block: _Block) -> AssistantPart:
    match block.type:
        case "text":
            return TextPart(block.text)
        case "thinking":
            opaque = {} if block.signature is None else {"signature": block.signature}
            return ReasoningPart(block.text, "thinking", opaque)
        case "redacted_thinking":
            return ReasoningPart("", "redacted_thinking", {"data": _text(block.fields.get("data"))})
        case _:
            return read_tool_call(_text(block.fields.get("id")), _text(block.fields.get("name")), block.text)


def _usage(counts: Mapping[str, int]) -> Usage:
    """Return the usage as reported; the vendor counts cache reads and writes separately."""
    if not counts:
        return Usage(estimated=True)
    read = counts.get("cache_read_input_tokens", 0)
    written = counts.get("cache_creation_input_tokens", 0)
    return Usage(
        input_tokens=counts.get("input_tokens", 0) + read + written,
        output_tokens=counts.get("output_tokens", 0),
        reasoning_tokens=counts.get("thinking_tokens", 0),
        cache_read_tokens=read,
        cache_write_tokens=written,
    )


def _index(fields: Mapping[str, Any]) -> int:
    index = fields.get("index")
    return index if isinstance(index, int) else 0


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _mapping(value: object) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}
