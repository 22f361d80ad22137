"""A question that no run asks, put before the user by their client: which flow they mean."""

from __future__ import annotations

from typing import TYPE_CHECKING

import anyio

from loom_core.cjk import is_chinese
from loom_core.flow.reply import CHOICE
from loom_core.server.asking import ask_form, can_ask, form_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loom_core.runs.run import Pending
    from loom_core.server.context import ToolContext

__all__ = ["chosen_by_form"]

_LEAST_ASKING = 10.0  # seconds that are left for a person to answer


async def chosen_by_form(
    ctx: ToolContext, pending: Sequence[Pending], *, name: str, until: float
) -> str | None:
    """What the user says to such a question, as a message; None if they were not asked, or said nothing.

    Args:
        ctx: the call.
        pending: what is waited for.
        name: what the question is called, unique in the call.
        until: when the call ends, as `anyio.current_time`.
    """
    asked = next((each for each in pending if each.id == CHOICE), None)
    left = until - anyio.current_time()
    if asked is None or left < _LEAST_ASKING or not can_ask(ctx):
        return None
    form = form_of(asked.schema)
    if form is None:
        return None
    answer = await ask_form(ctx, asked.reason, form, name=name, deadline=left)
    yes, no = ("是", "不要") if is_chinese(asked.reason) else ("yes", "no")
    if answer.outcome == "declined":
        return no
    chosen = answer.content.get("choice") if answer.outcome == "accepted" else None
    if isinstance(chosen, bool):
        return yes if chosen else no
    return str(chosen) if chosen else None
