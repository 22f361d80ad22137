"""What looks on while an agent works."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from loom_core.runs.events import StreamEvent
    from loom_core.runs.run import Run

__all__ = ["Callback"]


class Callback:
    """Is told every event of the runs that an agent drives in this process. This one does nothing with it.

    Who wants a say in what happens derives from `Hooks` instead; who is elsewhere, or must not miss anything
    that a crash leaves, follows the journal.
    """

    def on_event(self, event: StreamEvent, run: Run) -> None:
        """Something has happened. It is not in the journal's file yet: after a crash it may be told again.

        It is called in the event loop, and must not wait; what it raises is logged, and the run goes on.

        Args:
            event: what has happened.
            run: as it stands with that.
        """

    def on_detach(self, run: Run) -> None:
        """A run is not driven here any more: it has ended, waits for somebody, or was left as it is.

        What holds for `on_event` holds here.

        Args:
            run: as it stands.
        """
