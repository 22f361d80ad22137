"""Where a history may be cut in two, so that its older part can be summarised."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate
from typing import TYPE_CHECKING

from loom_core.agent.summary import is_summary
from loom_core.llm.messages import AssistantMessage, SystemMessage, TextPart, ToolMessage, UserMessage

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.llm.messages import Message

__all__ = ["Cut", "cut", "has_goal", "newest_from"]

_LONG_GOAL = 40  # characters: a goal as long as this stands in no other message by chance


@dataclass(frozen=True, slots=True)
class Cut:
    """A history in three parts. Each message is in one of them, as it was.

    Attributes:
        lead: what stays in front: system messages, and the message with the goal if that lies before the cut.
        dropped: what is summarised.
        kept: what stays behind the summary.
    """

    lead: tuple[Message, ...]
    dropped: tuple[Message, ...]
    kept: tuple[Message, ...]


def cut(history: Sequence[Message], sizes: Sequence[int], *, goal: str, room: float) -> Cut | None:
    """Cut a history so that as much as possible is kept, but no more than there is room for.

    The cut lies before a message of the user, and not behind the goal: what belongs to the goal stays whole.
    Only where that is too much by itself, the cut lies within it, before an answer of the model. So no result
    is parted from its call, and at least the newest answer is kept with all that followed it.

    Args:
        history: the conversation, oldest first.
        sizes: tokens of each message.
        goal: what the user wants.
        room: tokens that the kept part may have.

    Returns:
        The parts, or None where there is nothing to cut off.
    """
    behind = _behind(sizes)
    begins = next((place for place, each in enumerate(history) if not isinstance(each, SystemMessage)), 0)
    # An earlier summary is always in the part that is summarised.
    begins = max([begins, *(place for place, each in enumerate(history) if is_summary(each))])
    turn = _turn_of(history, goal)
    places = [place for place in _places(history) if place > begins]
    turns = [place for place in places if place <= turn and isinstance(history[place], UserMessage)]
    inside = [place for place in places if place > turn and isinstance(history[place], AssistantMessage)]
    chosen = next((place for place in (*turns, *inside) if behind[place] <= room), None)
    if chosen is None:
        chosen = inside[-1] if inside else turns[-1] if turns else None
    if chosen is None:
        return None
    lead = tuple(
        each
        for place, each in enumerate(history[:chosen])
        if isinstance(each, SystemMessage) or (place == turn and has_goal(each, goal))
    )
    stays = set(map(id, lead))
    dropped = tuple(each for each in history[:chosen] if id(each) not in stays)
    if all(map(is_summary, dropped)):
        return None
    return Cut(lead, dropped, tuple(history[chosen:]))


def newest_from(history: Sequence[Message], sizes: Sequence[int], *, room: float) -> int:
    """Where the newest part begins that there is room for: at an answer, the last one at the latest."""
    behind = _behind(sizes)
    answers = [place for place, each in enumerate(history) if isinstance(each, AssistantMessage)]
    last = answers[-1] if answers else len(history)
    return next((place for place in answers if behind[place] <= room), last)


def _behind(sizes: Sequence[int]) -> list[int]:
    """Tokens from each place to the end."""
    return [*accumulate(reversed(sizes))][::-1]


def _places(history: Sequence[Message]) -> list[int]:
    """Where a cut parts no result from its call: before answers, and before users whom no result follows."""
    places: list[int] = []
    results_follow = False
    for place in range(len(history) - 1, -1, -1):
        match history[place]:
            case AssistantMessage():
                results_follow = False
                places.append(place)
            case ToolMessage():
                results_follow = True
            case UserMessage() if not results_follow:
                places.append(place)
            case _:
                pass
    return places[::-1]


def _turn_of(history: Sequence[Message], goal: str) -> int:
    """Where the current turn begins: at the message with the goal, else at the last one of the user."""
    users = [
        place
        for place in range(len(history) - 1, -1, -1)
        if isinstance(history[place], UserMessage) and not is_summary(history[place])
    ]
    return next((place for place in users if has_goal(history[place], goal)), users[0] if users else 0)


def has_goal(message: Message, goal: str) -> bool:
    """Whether a message is the one in which the user says what is wanted."""
    if not isinstance(message, UserMessage) or is_summary(message) or not goal.strip():
        return False
    texts = [message.text, *(part.text for part in message.parts if isinstance(part, TextPart))]
    wanted = goal.strip()
    return any(wanted == text.strip() for text in texts) or (
        len(wanted) >= _LONG_GOAL and goal in message.text
    )
