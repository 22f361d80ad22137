"""Interface of callbacks: observers of an agent's runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run

__all__ = ["Callback"]


class Callback:
    """Callback for every event of the runs that an agent executes in this process. The base does nothing.

    To change what happens, derive from `Hooks` instead; to observe from another process, or to miss nothing
    after a crash, follow the journal.
    """

    def on_event(self, event: StreamEvent, run: Run) -> None:
        """Handle an event. It is not in the journal's file yet: after a crash it may be repeated.

        This is called in the event loop, and must not block; errors are logged, and the run continues.

        Args:
            event: the event.
            run: the run after the event.
        """

    def on_detach(self, run: Run) -> None:
        """Handle the release of a run: it has ended, waits for a person, or was detached.

        The rules of `on_event` apply.

        Args:
            run: the run.
        """
