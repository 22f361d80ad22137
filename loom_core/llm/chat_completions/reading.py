"""What a server answers, read piece by piece: the pieces for who waits for them, and the whole answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from loom_core.llm.chat_completions.calls import CallPiece, ToolCalls
from loom_core.llm.chat_completions.loose_json import as_items, as_mapping, as_text
from loom_core.llm.chat_completions.thinking import CAME_IN_TAGS, ThinkTags
from loom_core.llm.chat_completions.usage import read_usage
from loom_core.llm.interface import LLMResponse, StreamChunk
from loom_core.llm.messages import AssistantMessage, ReasoningPart, TextPart
from loom_core.llm.transport.reader import MAX_LENGTH, WireReader
from loom_core.sdk_errors import NoAnswerError

if TYPE_CHECKING:
    from loom_core.errors import ModelFailure
    from loom_core.llm.interface import FinishReason, ToolCallDelta
    from loom_core.llm.messages import AssistantPart
    from loom_core.llm.spec import ProviderSpec

__all__ = ["AnswerReader"]

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
"""Reasons that mean that there is no answer, or half of one."""


@dataclass(slots=True)
class _Passage:
    """Text or reasoning in one piece."""

    kind: Literal["text", "reasoning"]
    came_in: str = ""
    pieces: list[str] = field(default_factory=list[str])

    def as_part(self, opaque: Mapping[str, Any]) -> TextPart | ReasoningPart:
        text = "".join(self.pieces)
        return TextPart(text) if self.kind == "text" else ReasoningPart(text, self.came_in, opaque)


class AnswerReader(WireReader):
    """Reads one answer: feed it each chunk of a stream, or the whole body, then `flush`, then `response`.

    White space before the first text is held back until text follows: models write it before tool calls, too.
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
        self._blank: str | None = ""  # white space before the first text; None behind it
        self._odd: Mapping[str, Any] | None = None  # the first chunk that is no piece of an answer

    def feed(self, chunk: object) -> list[StreamChunk]:
        """What is new with the next chunk.

        Raises:
            LLMError: the chunk is no JSON object, or the answer is too long.
            NoAnswerError: it tells of an error.
        """
        if not isinstance(chunk, Mapping):
            raise self.unreadable("it is no JSON object")
        fields = cast("Mapping[str, Any]", chunk)
        if fields.get("error"):
            raise NoAnswerError(fields)
        choices = as_items(fields.get("choices"))
        choice = as_mapping(choices[0] if choices else None)
        # Kimi has it in the choice.
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
        if not delta and not self._parts:  # MiniMax ends a stream with the whole message once more
            delta = as_mapping(choice.get("message"))
            if whole := bool(delta):
                self._finish = self._finish or "stop"
        return self._read(delta, whole=whole) if delta else []

    def flush(self) -> list[StreamChunk]:
        """What was held back, as nothing follows."""
        chunks: list[StreamChunk] = []
        if self._tags is not None:
            reasoning, text = self._tags.finish()
            chunks += self._reasoned(reasoning, CAME_IN_TAGS)
            chunks += self._written(text)
        return chunks + self._called(self._calls.finish())

    def response(self) -> LLMResponse:
        """The whole answer.

        Raises:
            LLMError: it broke off, or there is none.
            NoAnswerError: what came instead tells of an error.
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
                chunks += self._reasoned(self._reasoning_text(name, value), name)
                break
        content = delta.get("content")
        if content and isinstance(content, str):
            chunks += self._content(content)
        elif blocks := as_items(content):  # Mistral and some gateways
            chunks += self._content("".join(as_text(as_mapping(block).get("text")) for block in blocks))
        if refusal := as_text(delta.get("refusal")):
            self._refused = True
            chunks += self._written(refusal)
        if calls := as_items(delta.get("tool_calls")):
            before = len(self._calls.calls)
            deltas = self._calls.feed(calls, whole=whole)
            self._parts += self._calls.calls[before:]
            chunks += self._called(deltas)
        if self._length + self._calls.length > self._max_length:
            raise self._too_long()
        return chunks

    def _content(self, piece: str) -> list[StreamChunk]:
        if self._tags is None or self._tags.done:
            return self._written(piece)
        reasoning, text = self._tags.feed(piece)
        return self._reasoned(reasoning, CAME_IN_TAGS) + self._written(text)

    def _written(self, piece: str) -> list[StreamChunk]:
        if self._blank is not None:
            piece = self._blank + piece
            if not piece or piece.isspace():
                self._blank = piece
                return []
            last = self._parts[-1] if self._parts else None
            if isinstance(last, _Passage) and last.came_in == CAME_IN_TAGS:
                piece = piece.lstrip()
            self._blank = None
        return self._passed("text", piece) if piece else []

    def _reasoned(self, piece: str, came_in: str) -> list[StreamChunk]:
        if not piece:
            return []
        if self._blank:
            self._blank = ""
        return self._passed("reasoning", piece, came_in)

    def _passed(self, kind: Literal["text", "reasoning"], piece: str, came_in: str = "") -> list[StreamChunk]:
        last = self._parts[-1] if self._parts else None
        if not isinstance(last, _Passage) or last.kind != kind or last.came_in != came_in:
            last = _Passage(kind, came_in)
            self._parts.append(last)
        last.pieces.append(piece)
        self._length += len(piece)
        return [StreamChunk(kind, text=piece)]

    def _reasoning_text(self, name: str, value: object) -> str:
        """The text of a field of reasoning; a list of blocks is kept, too, as it has to go back whole."""
        blocks = [block for block in map(as_mapping, as_items(value)) if block]
        if blocks and name not in self._blocks:
            self._blocks[name] = []
            self._parts.append(_Passage("reasoning", name))  # also where no block has text
        for block in blocks:
            _put_block(self._blocks[name], block)
            self._length += len(str(block))
        return as_text(value) or "".join(map(_text_of_block, blocks))

    def _called(self, deltas: list[ToolCallDelta]) -> list[StreamChunk]:
        chunks: list[StreamChunk] = []
        for delta in deltas:
            if not self._is_answer(self._calls.calls[delta.index]):
                chunks.append(StreamChunk("tool_call", tool_call=delta))
            elif delta.arguments:
                chunks.append(StreamChunk("text", text=delta.arguments))
        return chunks

    def _is_answer(self, part: CallPiece | _Passage) -> bool:
        """Whether it is a call of the tool that takes the answer."""
        return isinstance(part, CallPiece) and bool(self._output_tool) and part.name == self._output_tool

    def _message_parts(self) -> tuple[AssistantPart, ...]:
        """The parts in order; where the answer came by a tool, that is the text, and no other is."""
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


def _put_block(blocks: list[dict[str, Any]], block: Mapping[str, Any]) -> None:
    """Put a block of reasoning behind the others, or a piece of one into it, as it says by its `index`."""
    for known in reversed(blocks):
        if known.get("index") == block.get("index") and known.get("type") == block.get("type"):
            grown = {
                name: as_text(known.get(name)) + as_text(block.get(name)) for name in ("text", "summary")
            }
            known |= {name: value for name, value in block.items() if value is not None}
            known |= {name: text for name, text in grown.items() if text}
            return
    blocks.append(dict(block))
