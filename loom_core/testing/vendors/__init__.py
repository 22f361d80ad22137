"""Servers of all vendors of language models, for tests: as strict as theirs, and wrong on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING

from loom_core.exports import exports

if TYPE_CHECKING:
    from loom_core.testing.vendors.app import FakeVendors
    from loom_core.testing.vendors.script import Call, Recorded, Tokens, Turn

__all__ = ["Call", "FakeVendors", "Recorded", "Tokens", "Turn"]

if not TYPE_CHECKING:
    __getattr__, __dir__ = exports(
        __name__,
        {
            "Call": ".script",
            "FakeVendors": ".app",
            "Recorded": ".script",
            "Tokens": ".script",
            "Turn": ".script",
        },
    )
