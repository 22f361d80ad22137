"""How often a lost server is tried again, and when."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

__all__ = ["Backoff"]


@dataclass(frozen=True, slots=True)
class Backoff:
    """How often a lost server is tried again before it is given up, and when.

    Attributes:
        attempts: so many failures in a row, and it is given up until somebody asks for it.
        first: seconds to wait at most after the first failure; each further failure doubles them.
        cap: seconds to wait at most.
        settled: a connection that has lasted for so many seconds ends the row of failures; a server that dies
            sooner each time would be started for ever.
        random: a number in [0, 1).
    """

    attempts: int = 4
    first: float = 0.25
    cap: float = 10.0
    settled: float = 10.0
    random: Callable[[], float] = field(default=random.random, repr=False, compare=False)

    def wait_after(self, failures: int) -> float:
        """Seconds to wait after so many failures in a row: half of it certain, half of it chance."""
        ceiling = min(self.cap, self.first * 2 ** min(failures - 1, 30))
        return ceiling * (0.5 + 0.5 * self.random())
