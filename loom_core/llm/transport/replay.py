"""A conversation as it goes back to a vendor: each call with its result, and the reasoning that it wants.

Vendors differ most in reasoning: one answers 400 where it is missing, another where it is there, a third
where a letter of it has changed. `ProviderSpec.replay` says what each wants.
"""

from __future__ import annotations

from collections import defaultdict, deque
from dataclasses import replace
from typing import TYPE_CHECKING

from loom_core.llm.messages import (
    AssistantMessage,
    ReasoningPart,
    TextPart,
    ToolCallPart,
    ToolMessage,
    UserMessage,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.llm.messages import Message
    from loom_core.llm.vendors import ProviderSpec


__all__ = ["NO_RESULT", "needs_filler", "pair_tool_results", "with_reasoning_to_replay"]

NO_RESULT = "There is no result: the tool was not run, or was stopped."
"""What a call is answered with where the conversation has no answer."""


def pair_tool_results(messages: Sequence[Message]) -> tuple[Message, ...]:
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
        done += _answer_calls(message, messages[position:end], seen)
    return tuple(done)


def _answer_calls(
    message: AssistantMessage, following: Sequence[Message], seen: dict[str, int]
) -> list[Message]:
    """A message and the results of its calls; what else follows it stays where it is."""
    results: defaultdict[str, deque[ToolMessage]] = defaultdict(deque)
    for result in following:
        if isinstance(result, ToolMessage):
            results[result.call_id].append(result)
    ids = [_unique_id(call.id, seen) for call in message.tool_calls]
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


def _unique_id(id_: str, seen: dict[str, int]) -> str:
    """The id, or another one where it was there before; `seen` holds the last number that each was given."""
    id_ = unused = id_ or "call"
    while unused in seen:
        seen[id_] += 1
        unused = f"{id_}_{seen[id_]}"
    seen[unused] = 1
    return unused


def with_reasoning_to_replay(
    messages: Sequence[Message], spec: ProviderSpec, *, tools: bool
) -> tuple[Message, ...]:
    """The conversation with the reasoning that goes back, and no other.

    What stays is unchanged. It goes back to the provider that it came from, which `AssistantMessage.provider`
    names: reasoning of another one never does, and neither do its signatures. Reasoning of a message that
    names none was written by hand: it goes back as text; with something opaque it does not.

    Args:
        messages: the conversation, oldest first.
        spec: the vendor that is asked.
        tools: whether the request carries tools.
    """
    first = _first_replayed(messages, spec, tools=tools)
    return tuple(
        _without_foreign(message, spec, dropped=number < first)
        if isinstance(message, AssistantMessage)
        else message
        for number, message in enumerate(messages)
    )


def needs_filler(message: AssistantMessage, spec: ProviderSpec, *, tools: bool) -> bool:
    """Whether a message that has no reasoning has to say so, by `ProviderSpec.replay_filler`.

    That is every one where reasoning is wanted as soon as there are tools, as with DeepSeek, and every one
    with tool calls elsewhere, as with Kimi.
    """
    if spec.replay_filler is None:
        return False
    return tools if spec.replay == "with_tools" else bool(message.tool_calls)


def _first_replayed(messages: Sequence[Message], spec: ProviderSpec, *, tools: bool) -> int:
    """The place of the first message whose reasoning goes back."""
    match spec.replay:
        case "always":
            return 0
        case "with_tools":
            return 0 if tools else len(messages)
        case "same_turn":
            users = [number for number, message in enumerate(messages) if isinstance(message, UserMessage)]
            return users[-1] + 1 if users else 0
        case "never":
            return len(messages)


def _without_foreign(message: AssistantMessage, spec: ProviderSpec, *, dropped: bool) -> AssistantMessage:
    parts = tuple(
        part
        for part in message.parts
        if not isinstance(part, ReasoningPart) or (not dropped and _is_own(part, message, spec))
    )
    return message if len(parts) == len(message.parts) else replace(message, parts=parts)


def _is_own(part: ReasoningPart, message: AssistantMessage, spec: ProviderSpec) -> bool:
    return message.provider == spec.name or (not message.provider and not part.opaque)
