"""Tool calls and their results, as every vendor wants them: each call has one result, right behind it."""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace
from typing import TYPE_CHECKING

from loom_core.llm.messages import AssistantMessage, TextPart, ToolCallPart, ToolMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.llm.messages import Message

__all__ = ["NO_RESULT", "paired"]

NO_RESULT = "There is no result: the tool was not run, or was stopped."
"""What a call is answered with where the conversation has no answer."""


def paired(messages: Sequence[Message]) -> tuple[Message, ...]:
    """The conversation with each tool call answered once, right behind the message that makes it.

    Conversations that were stopped, shortened or put together by hand are often not like this, and vendors
    refuse such ones. So: results come in the order of the calls, before anything that was said meanwhile; a
    call without a result is answered by `NO_RESULT`; a result without a call is left out, and so is a second
    one; a call whose id was there before gets another, and its result with it. What is right stays as it is.
    """
    done: list[Message] = []
    seen: dict[str, int] = {}
    position = 0
    while position < len(messages):
        message = messages[position]
        position += 1
        if isinstance(message, ToolMessage):
            continue
        if not isinstance(message, AssistantMessage) or not message.tool_calls:
            done.append(message)
            continue
        end = position
        while end < len(messages) and not isinstance(messages[end], AssistantMessage):
            end += 1
        done += _answered(message, messages[position:end], seen)
    return tuple(done)


def _answered(message: AssistantMessage, following: Sequence[Message], seen: dict[str, int]) -> list[Message]:
    """A message and the results of its calls; what else follows it stays where it is."""
    results: defaultdict[str, deque[ToolMessage]] = defaultdict(deque)
    for result in following:
        if isinstance(result, ToolMessage):
            results[result.call_id].append(result)
    ids = [_unused(call.id, seen) for call in message.tool_calls]
    answers: list[Message] = []
    for call, id_ in zip(message.tool_calls, ids, strict=True):
        found = results[call.id].popleft() if results[call.id] else None
        if found is None:
            found = ToolMessage(id_, (TextPart(NO_RESULT),), failed=True)
        answers.append(found if found.call_id == id_ else replace(found, call_id=id_))
    renamed = iter(ids)
    parts = tuple(
        replace(part, id=next(renamed)) if isinstance(part, ToolCallPart) else part for part in message.parts
    )
    return [message if parts == message.parts else replace(message, parts=parts), *answers]


def _unused(id_: str, seen: dict[str, int]) -> str:
    """The id, or another one where it was there before; `seen` holds the last number that each was given."""
    id_ = unused = id_ or "call"
    while unused in seen:
        seen[id_] += 1
        unused = f"{id_}_{seen[id_]}"
    seen[unused] = 1
    return unused
