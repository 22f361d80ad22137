"""The interpreter's settings in a process that serves: measured, and the same in the benchmarks."""

from __future__ import annotations

import gc
import sys

__all__ = ["set_for_serving"]

# A question gives the interpreter's lock away some dozens of times, and beside a thread that computes, such
# as an ingest, it waits so long to get it back each time. Python's own 5 ms made questions during an ingest
# 2.3 to 5.5 times as slow as at rest (p95), this 1.9 to 2.8 times; the ingest's pace did not tell them apart.
_SWITCH_SECONDS = 0.0005

# Documents and answers are many objects with hardly a cycle. To search for garbage at every 700 of them, as
# Python does, took a tenth of what an ingest takes of its process; 20,000 saves no more than this.
_ALLOCATIONS = 5_000


def set_for_serving() -> None:
    """Set this process' interpreter as a server needs it; for who owns the process."""
    sys.setswitchinterval(_SWITCH_SECONDS)
    gc.set_threshold(_ALLOCATIONS)
