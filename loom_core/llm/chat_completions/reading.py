"""Response reader of the chat completions API: chunks of a stream, and the complete response."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast
from uuid import uuid4

from loom_core.llm.chat_completions.thinking import CAME_IN_TAGS, ThinkTags
from loom_core.llm.interface import LLMResponse, StreamChunk, ToolCallDelta, Usage
from loom_core.llm.message_reading import read_tool_call
from loom_core.llm.messages import AssistantMessage, ReasoningPart, TextPart
from loom_core.llm.transport.sdk_client import MAX_COUNT, MAX_LENGTH, WireReader
from loom_core.sdk_errors import NoAnswerError

if TYPE_CHECKING:
    from loom_core.errors import ModelFailure
    from loom_core.llm.interface import FinishReason
    from loom_core.llm.messages import AssistantPart, ToolCallPart
    from loom_core.llm.vendors import ProviderSpec

__all__ = [
    "AnswerReader",
    "CallPiece",
    "ToolCalls",
    "as_count",
    "as_items",
    "as_mapping",
    "as_text",
    "read_usage",
]

_FINISH: Mapping[str, FinishReason] = {
    "stop": "stop",
    "eos": "stop",
    "stop_sequence": "stop",
    "end_turn": "stop",
    "length": "length",
    "max_tokens": "length",
    "tool_calls": "tool_calls",
    "function_call": "tool_calls",
    "tool_use": "tool_calls",
    "content_filter": "refused",
    "sensitive": "refused",  # Zhipu
    "refusal": "refused",
    "model_context_window_exceeded": "too_long",  # Zhipu
}
_FAILED: Mapping[str, ModelFailure] = {
    "insufficient_system_resource": "overloaded",  # DeepSeek
    "network_error": "server",  # Zhipu
    "error": "server",
}
"""Finish reasons that mean that there is no response, or half of one."""


@dataclass(slots=True)
class _Passage:
    """A run of text or reasoning."""

    kind: Literal["text", "reasoning"]
    came_in: str = ""
    pieces: list[str] = field(default_factory=list[str])

    def as_part(self, opaque: Mapping[str, Any]) -> TextPart | ReasoningPart:
        text = "".join(self.pieces)
        return TextPart(text) if self.kind == "text" else ReasoningPart(text, self.came_in, opaque)


class AnswerReader(WireReader):
    """Reads one response: feed each chunk of a stream, or the whole body, then `flush`, then `response`.

    White space before the first text is buffered until text follows: models write it before tool calls, too.
    """

    def __init__(
        self, spec: ProviderSpec, *, model: str, output_tool: str = "", max_length: int = MAX_LENGTH
    ) -> None:
        super().__init__(spec, model=model, output_tool=output_tool, max_length=max_length)
        self._refused = False
        self._usage: Mapping[str, Any] = {}
        self._parts: list[_Passage | CallPiece] = []
        self._calls = ToolCalls(extras=spec.call_extras)
        self._tags = ThinkTags() if spec.think_tags else None
        self._blocks: dict[str, list[dict[str, Any]]] = {}  # of reasoning, by field
        self._blank: str | None = ""  # white space before the first text; None after it
        self._odd: Mapping[str, Any] | None = None  # the first chunk that is no part of a response

    def feed(self, chunk: object) -> list[StreamChunk]:
        """Return the chunks of the next event.

        Raises:
            LLMError: the event is no JSON object, or the response is too long.
            NoAnswerError: it reports an error.
        """
        if not isinstance(chunk, Mapping):
            raise self.unreadable("it is not a JSON object")
        fields = cast("Mapping[str, Any]", chunk)
        if fields.get("error"):
            raise NoAnswerError(fields)
        choices = as_items(fields.get("choices"))
        choice = as_mapping(choices[0] if choices else None)
        # Kimi puts the usage into the choice.
        if usage := as_mapping(fields.get("usage")) or as_mapping(choice.get("usage")):
            self._usage = usage
        if not self._model:
            self._model = as_text(fields.get("model"))
        if not choice:
            self._odd = self._odd or (None if usage else fields)
            return []
        if finish := as_text(choice.get("finish_reason")):
            self._finish = finish
        delta, whole = as_mapping(choice.get("delta")), False
        if not delta and not self._parts:  # MiniMax repeats the whole message at the end of a stream
            delta = as_mapping(choice.get("message"))
            if whole := bool(delta):
                self._finish = self._finish or "stop"
        return self._read(delta, whole=whole) if delta else []

    def flush(self) -> list[StreamChunk]:
        """Return what was buffered, at the end of the stream."""
        chunks: list[StreamChunk] = []
        if self._tags is not None:
            reasoning, text = self._tags.finish()
            chunks += self._add_reasoning(reasoning, CAME_IN_TAGS)
            chunks += self._add_text(text)
        return chunks + self._emit_calls(self._calls.finish())

    def response(self) -> LLMResponse:
        """Return the complete response.

        Raises:
            LLMError: it broke off, or there is none.
            NoAnswerError: the server sent an error instead.
        """
        if not self._finish:
            if self._parts or self._odd is None:
                raise self._broken_off()
            if self._odd.get("choices") in ([], [{}]):
                raise self.unreadable("it has no choices")
            raise NoAnswerError(self._odd)
        if self._finish in _FAILED:
            raise self._error(_FAILED[self._finish], "gave up the answer of", f"It says {self._finish!r}.")
        message = AssistantMessage(self._message_parts(), self._spec.name, self._model or self._asked)
        return LLMResponse(message, self._finish_reason(message), read_usage(self._usage))

    def _read(self, delta: Mapping[str, Any], *, whole: bool) -> list[StreamChunk]:
        chunks: list[StreamChunk] = []
        for name in self._spec.reasoning_fields:
            if value := delta.get(name):
                chunks += self._add_reasoning(self._reasoning_text(name, value), name)
                break
        content = delta.get("content")
        if content and isinstance(content, str):
            chunks += self._content(content)
        elif blocks := as_items(content):  # Mistral and some gateways
            chunks += self._content("".join(as_text(as_mapping(block).get("text")) for block in blocks))
        if refusal := as_text(delta.get("refusal")):
            self._refused = True
            chunks += self._add_text(refusal)
        if calls := as_items(delta.get("tool_calls")):
            before = len(self._calls.calls)
            deltas = self._calls.feed(calls, whole=whole)
            self._parts += self._calls.calls[before:]
            chunks += self._emit_calls(deltas)
        if self._length + self._calls.length > self._max_length:
            raise self._too_long()
        return chunks

    def _content(self, piece: str) -> list[StreamChunk]:
        if self._tags is None or self._tags.done:
            return self._add_text(piece)
        reasoning, text = self._tags.feed(piece)
        return self._add_reasoning(reasoning, CAME_IN_TAGS) + self._add_text(text)

    def _add_text(self, piece: str) -> list[StreamChunk]:
        if self._blank is not None:
            piece = self._blank + piece
            if not piece or piece.isspace():
                self._blank = piece
                return []
            last = self._parts[-1] if self._parts else None
            if isinstance(last, _Passage) and last.came_in == CAME_IN_TAGS:
                piece = piece.lstrip()
            self._blank = None
        return self._append_passage("text", piece) if piece else []

    def _add_reasoning(self, piece: str, came_in: str) -> list[StreamChunk]:
        if not piece:
            return []
        if self._blank:
            self._blank = ""
        return self._append_passage("reasoning", piece, came_in)

    def _append_passage(
        self, kind: Literal["text", "reasoning"], piece: str, came_in: str = ""
    ) -> list[StreamChunk]:
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, _Passage) or last.kind != kind or last.came_in != came_in:
            last = _Passage(kind, came_in)
            self._parts.append(last)
        last.pieces.append(piece)
        self._length += len(piece)
        return [StreamChunk(kind, text=piece)]

    def _reasoning_text(self, name: str, value: object) -> str:
        """Return the text of a reasoning field; a list of blocks is kept, as it has to go back unchanged."""
        blocks = [block for block in map(as_mapping, as_items(value)) if block]
        if blocks and name not in self._blocks:
            self._blocks[name] = []
            self._parts.append(_Passage("reasoning", name))  # even if no block has text
        for block in blocks:
            _merge_block(self._blocks[name], block)
            self._length += len(str(block))
        return as_text(value) or "".join(map(_text_of_block, blocks))

    def _emit_calls(self, deltas: list[ToolCallDelta]) -> list[StreamChunk]:
        chunks: list[StreamChunk] = []
        for delta in deltas:
            if not self._is_answer(self._calls.calls[delta.index]):
                chunks.append(StreamChunk("tool_call", tool_call=delta))
            elif delta.arguments:
                chunks.append(StreamChunk("text", text=delta.arguments))
        return chunks

    def _is_answer(self, part: CallPiece | _Passage) -> bool:
        """Return whether it is a call of the output tool."""
        return isinstance(part, CallPiece) and bool(self._output_tool) and part.name == self._output_tool

    def _message_parts(self) -> tuple[AssistantPart, ...]:
        """Return the parts in order; the arguments of a called output tool become the only text."""
        blocks = dict(self._blocks)
        answer = next((call for call in self._calls.calls if self._is_answer(call)), None)
        parts: list[AssistantPart] = []
        for part in self._parts:
            if isinstance(part, CallPiece):
                if not self._is_answer(part):
                    parts.append(part.as_part())
            elif part.kind == "reasoning" or answer is None:
                own = blocks.pop(part.came_in, None)
                parts.append(part.as_part({part.came_in: own} if own else {}))
        if answer is not None:
            parts.append(TextPart(answer.text))
        return tuple(parts)

    def _finish_reason(self, message: AssistantMessage) -> FinishReason:
        if self._refused:
            return "refused"
        finish = _FINISH.get(self._finish, "other")
        if finish in {"stop", "tool_calls"}:
            return "tool_calls" if message.tool_calls else "stop"
        return finish


def _text_of_block(block: Mapping[str, Any]) -> str:
    return as_text(block.get("text")) or as_text(block.get("summary"))


def _merge_block(blocks: list[dict[str, Any]], block: Mapping[str, Any]) -> None:
    """Append a reasoning block, or merge a delta into the block with the same `index`."""
    for known in reversed(blocks):
        if known.get("index") == block.get("index") and known.get("type") == block.get("type"):
            grown = {
                name: as_text(known.get(name)) + as_text(block.get(name)) for name in ("text", "summary")
            }
            known |= {name: value for name, value in block.items() if value is not None}
            known |= {name: text for name, text in grown.items() if text}
            return
    blocks.append(dict(block))


def read_usage(fields: Mapping[str, Any]) -> Usage:
    """Read the field `usage` of a response; if it is empty, all is to be estimated."""
    if not fields:
        return Usage(estimated=True)
    prompt = as_mapping(fields.get("prompt_tokens_details"))
    cached = prompt.get("cached_tokens")
    if cached is None:  # DeepSeek; Kimi
        cached = fields.get("prompt_cache_hit_tokens", fields.get("cached_tokens"))
    reasoning = as_mapping(fields.get("completion_tokens_details")).get("reasoning_tokens")
    return Usage(
        input_tokens=as_count(fields.get("prompt_tokens")),
        output_tokens=as_count(fields.get("completion_tokens")),
        reasoning_tokens=as_count(reasoning),
        cache_read_tokens=as_count(cached),
        cache_write_tokens=as_count(prompt.get("cache_write_tokens")),  # OpenAI, dearer since gpt-5.6
    )


@dataclass(slots=True)
class CallPiece:
    """A tool call as received so far.

    Attributes:
        index: position of the call in the response, from 0.
        place: the server's index of it, or None.
        came_as: the server's id of it, or empty so far.
        id: our id of it, set when it is announced: a new one if the server's is missing, or repeats that of
            an earlier call.
        name: the tool.
        arguments: their JSON text, in pieces.
        opaque: further fields that came with it.
    """

    index: int
    place: int | None
    came_as: str = ""
    id: str = ""
    name: str = ""
    arguments: list[str] = field(default_factory=list[str])
    opaque: dict[str, Any] = field(default_factory=dict[str, Any])

    @property
    def text(self) -> str:
        """The arguments' text so far."""
        return "".join(self.arguments)

    @property
    def whole(self) -> bool:
        """Whether the arguments are complete JSON."""
        try:
            return isinstance(json.loads(self.text), dict)
        except (ValueError, RecursionError):
            return False

    def as_part(self) -> ToolCallPart:
        """Return the call as a part of a message."""
        return read_tool_call(self.id, self.name, self.text, opaque=self.opaque)


class ToolCalls:
    """Assembles the tool calls of one response from deltas.

    By the specification a delta has an `index`, and the first delta of a call its id and name. Servers also
    send no index, 0 for all calls, whole calls at once, the id and the name with every delta, a new id with
    every delta, no id, or the name in pieces; all this is handled where it is unambiguous.

    Attributes:
        calls: the calls so far, in order.
        length: approximate number of characters received.
    """

    def __init__(self, *, extras: Sequence[str] = ()) -> None:
        """Start a response.

        Args:
            extras: fields of a call that are kept in its `opaque`.
        """
        self.calls: list[CallPiece] = []
        self.length = 0
        self._extras = extras
        self._ids: set[str] = set()

    def feed(self, pieces: Sequence[object], *, whole: bool = False) -> list[ToolCallDelta]:
        """Add the next deltas.

        Args:
            pieces: the list `tool_calls` of a message or a delta.
            whole: the list is that of a message: each item is a separate call.
        """
        deltas: list[ToolCallDelta] = []
        for position, piece in enumerate(pieces):
            if fields := as_mapping(piece):
                number = position if len(pieces) > 1 else None
                deltas += self._feed(fields, number, whole=whole)
        return deltas

    def finish(self) -> list[ToolCallDelta]:
        """Return the calls not announced so far: those without arguments, or without a name."""
        return [self._announce(call) for call in self.calls if not call.id]

    def _feed(self, piece: Mapping[str, Any], number: int | None, *, whole: bool) -> list[ToolCallDelta]:
        function = as_mapping(piece.get("function"))
        id_, name = as_text(piece.get("id")), as_text(function.get("name"))
        arguments = _json_text(function.get("arguments"))
        index = piece.get("index")
        place = index if isinstance(index, int) else None if id_ else number
        call = None if whole else self._find_open_call(place, id_, name, arguments)
        if call is None:
            call = CallPiece(len(self.calls), place)
            self.calls.append(call)
        self.length += len(id_) + len(name) + len(arguments) + 1
        call.came_as = call.came_as or id_
        call.opaque |= {extra: piece[extra] for extra in self._extras if piece.get(extra)}
        if name != call.name and not call.id:
            call.name += name
        if arguments:
            call.arguments.append(arguments)
        if call.id:
            return [ToolCallDelta(call.index, arguments=arguments)] if arguments else []
        return [self._announce(call)] if call.name and call.arguments else []

    def _find_open_call(self, place: int | None, id_: str, name: str, arguments: str) -> CallPiece | None:
        """Find the call that a delta continues; None if it begins a new one."""
        if id_:
            for call in reversed(self.calls):
                if call.came_as == id_ and (place is None or call.place in {None, place}):
                    return call
        current = next((call for call in reversed(self.calls) if place is None or call.place == place), None)
        if current is None:
            return None
        if id_ and name and current.came_as and (not current.arguments or current.whole):
            return None
        if name and arguments and not id_ and current.name and current.whole:
            return None
        return current

    def _announce(self, call: CallPiece) -> ToolCallDelta:
        """Return the first delta of a call, as soon as its name is certain."""
        call.id = call.came_as
        while not call.id or call.id in self._ids:
            call.id = f"call_{uuid4().hex[:24]}"
        self._ids.add(call.id)
        return ToolCallDelta(call.index, call.id, call.name, call.text)


def _json_text(value: object) -> str:
    """Return arguments as JSON text: some servers send the object."""
    if value is None or isinstance(value, str):
        return value or ""
    return json.dumps(value, ensure_ascii=False)


def as_text(value: object) -> str:
    """Return the value if it is a string, else an empty one."""
    return value if isinstance(value, str) else ""


def as_mapping(value: object) -> Mapping[str, Any]:
    """Return the value if it is a mapping, else an empty one."""
    return cast("Mapping[str, Any]", value) if isinstance(value, Mapping) else {}


def as_items(value: object) -> Sequence[object]:
    """Return the value if it is a list, else an empty one."""
    return cast("Sequence[object]", value) if isinstance(value, list) else ()


def as_count(value: object) -> int:
    """Return the value if it is a possible count, else 0."""
    return int(value) if isinstance(value, int | float) and 0 < value < MAX_COUNT else 0
