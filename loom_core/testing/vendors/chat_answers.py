"""Answers in the chat-completions format, whole and as streams, as each vendor writes them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, cast

from loom_core.testing.vendors.chat_quirks import gemini_signature
from loom_core.testing.vendors.chat_vendors import ChatVendor
from loom_core.testing.vendors.json_fields import Json, mapping
from loom_core.testing.vendors.memory import Memory
from loom_core.testing.vendors.refusal import error_body, error_of_turn
from loom_core.testing.vendors.script import Call, Tokens, Turn

__all__ = ["ChatAnswer"]


class ChatAnswer:
    """One answer of one vendor."""

    def __init__(self, vendor: ChatVendor, body: Json, turn: Turn, memory: Memory) -> None:
        self._vendor = vendor
        self._body = body
        self._turn = turn
        self._head = {"id": memory.new_id("chatcmpl-"), "created": 1_795_000_000, "model": body["model"]}
        self._calls = [self._call(number, call, memory) for number, call in enumerate(turn.calls)]
        self._split = vendor.reasoning_field == "think" and bool(body.get("reasoning_split"))
        for call in self._calls:
            memory.keep(call["id"], self._message())

    def whole(self) -> Json:
        """The answer at once."""
        finish = self._turn.finish or ("tool_calls" if self._calls else "stop")
        choice = {"index": 0, "message": self._message(), "logprobs": None, "finish_reason": finish}
        answer = {**self._head, "object": "chat.completion", "choices": [choice]}
        if self._turn.usage is not None:
            answer["usage"] = self._usage(self._turn.usage)
        return answer

    def frames(self) -> list[bytes]:
        """The answer as the events of a stream."""
        frames = [_frame(chunk) for chunk in self._chunks()]
        if self._turn.stream_error:
            error = error_body(self._vendor.name, error_of_turn(500, message=self._turn.stream_error))
            body = cast("list[Json]", error)[0] if isinstance(error, list) else error
            return [*frames[: len(frames) // 2], _frame(body)]
        return [*frames, b"data: [DONE]\n\n"]

    def _message(self) -> dict[str, Any]:
        turn, vendor = self._turn, self._vendor
        message: dict[str, Any] = {"role": "assistant", "content": turn.text or None}
        if not self._calls or vendor.name in {"deepseek", "minimax", "ollama"}:
            message["content"] = turn.text
        if turn.reasoning:
            match vendor.reasoning_field:
                case "think" if self._split:
                    message["reasoning_content"] = turn.reasoning
                    message["reasoning_details"] = [self._detail(turn.reasoning)]
                case "think":
                    message["content"] = f"<think>\n{turn.reasoning}\n</think>\n\n{turn.text}"
                case "":
                    pass
                case field:
                    message[field] = turn.reasoning
        if self._calls:
            message["tool_calls"] = [
                {name: value for name, value in call.items() if name != "index"} for call in self._calls
            ]
        return message

    def _detail(self, text: str) -> Json:
        return {
            "type": "reasoning.text",
            "id": "reasoning-text-1",
            "format": "MiniMax-response-v1",
            "index": 0,
            "text": text,
        }

    def _call(self, number: int, call: Call, memory: Memory) -> dict[str, Any]:
        arguments = call.arguments
        if not isinstance(arguments, str):
            arguments = json.dumps(arguments, ensure_ascii=False)
        said: dict[str, Any] = {
            "index": number,
            "id": memory.new_id(f"call_{self._vendor.name}_"),
            "type": "function",
            "function": {"name": call.name, "arguments": arguments},
        }
        if self._vendor.name == "gemini" and number == 0:  # the first of parallel calls signs for all
            said["extra_content"] = {"google": {"thought_signature": gemini_signature(call.name)}}
        return said

    def _chunks(self) -> Iterator[Json]:
        vendor, turn = self._vendor, self._turn
        usage = None if turn.usage is None else self._usage(turn.usage)
        wanted = bool(mapping(self._body, "stream_options").get("include_usage"))
        every = {"usage": usage} if usage and vendor.usage_in == "every" else {}
        if vendor.usage_in == "own" and wanted:
            every = {"usage": None}
        for delta in self._deltas():
            yield self._chunk(delta, None) | every
        finish = turn.finish or (vendor.stream_finish if self._calls else "stop")
        last = self._chunk({"content": ""} if vendor.name == "deepseek" else {}, finish)
        if vendor.usage_in == "last" and usage:
            if vendor.name == "kimi":
                last["choices"][0]["usage"] = usage
            every = {"usage": usage}
        yield last | every
        if vendor.usage_in == "own" and wanted and usage:
            yield self._chunk(None, None) | {"usage": usage}

    def _chunk(self, delta: Json | None, finish: str | None) -> dict[str, Any]:
        choices = (
            [] if delta is None else [{"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}]
        )
        return {**self._head, "object": "chat.completion.chunk", "choices": choices}

    def _deltas(self) -> Iterator[Json]:
        turn, field = self._turn, self._vendor.reasoning_field
        # DeepSeek names both fields in every delta, one of them null.
        both = self._vendor.name == "deepseek"
        yield {"role": "assistant", "content": ""}
        for piece in self._pieces(turn.reasoning if field not in {"", "think"} else ""):
            yield {"content": None, field: piece} if both else {field: piece}
        text = turn.text
        if field == "think" and turn.reasoning:
            if self._split:
                for piece in self._pieces(turn.reasoning):
                    yield {"reasoning_content": piece, "reasoning_details": [self._detail(piece)]}
            else:
                text = cast("str", self._message()["content"])
        for piece in self._pieces(text):
            yield {"content": piece, field: None} if both else {"content": piece}
        for call in self._calls:
            if self._vendor.whole_calls:
                yield {"tool_calls": [call]}
                continue
            arguments: str = call["function"]["arguments"]
            yield {"tool_calls": [{**call, "function": {"name": call["function"]["name"], "arguments": ""}}]}
            for piece in self._pieces(arguments):
                yield {"tool_calls": [{"index": call["index"], "function": {"arguments": piece}}]}

    def _pieces(self, text: str) -> Iterator[str]:
        for start in range(0, len(text), self._turn.piece):
            yield text[start : start + self._turn.piece]

    def _usage(self, tokens: Tokens) -> dict[str, Any]:
        usage: dict[str, Any] = {
            "prompt_tokens": tokens.input,
            "completion_tokens": tokens.output,
            "total_tokens": tokens.input + tokens.output,
        }
        match self._vendor.name:
            case "ollama" | "vllm" | "gpustack" | "openai_compatible" | "custom":
                return usage
            case "deepseek":
                usage["prompt_cache_hit_tokens"] = tokens.cached
                usage["prompt_cache_miss_tokens"] = tokens.input - tokens.cached
            case "kimi":
                usage["cached_tokens"] = tokens.cached
            case _:
                usage["prompt_tokens_details"] = {"cached_tokens": tokens.cached}
        usage["completion_tokens_details"] = {"reasoning_tokens": tokens.reasoning}
        return usage


def _frame(value: Json) -> bytes:
    return b"data: " + json.dumps(value, ensure_ascii=False).encode("utf-8", "replace") + b"\n\n"
