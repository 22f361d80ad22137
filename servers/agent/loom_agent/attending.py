"""How calls wait for the runs of agents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_agent.progress_lines import ProgressLines
from loom_agent.texts import question_of
from loom_agent.wording import Wording
from loom_core.server.attending import Attending

if TYPE_CHECKING:
    from collections.abc import Callable

    from loom_agent.service import Service
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Pending, Run

__all__ = ["attending"]


def attending(service: Service) -> Attending:
    """Waiting for the runs of a service, in the language of their goals."""
    return Attending(service, _question, _lines)


def _question(run: Run, pending: Pending) -> str:
    return question_of(pending, Wording.for_goal(run.request.goal))


def _lines(run: Run) -> Callable[[StreamEvent], str]:
    return ProgressLines(Wording.for_goal(run.request.goal)).line
