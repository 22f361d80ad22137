"""Writes docs/reference/events.md: the events of a run (`python -m tools.reference events`).

The page is made from `EventType` in loom_core/runs/events.py, whose comments give the payloads.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from inspect import getsource
from pathlib import Path
from typing import get_args

from loom_core.runs import events
from loom_core.runs.events import FINAL_EVENTS, EventType
from tools.provider_reference import table

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "events.md"

_HEAD = """\
# Events

Made by `python -m tools.reference` from the code; do not edit.

Everything that an agent or a flow does is an event: written once to the journal, in order, and read from
there by all clients: `agent_events` and `flow_status`, `loom-agent-server events RUN --follow --json`, the
resource `loom://runs/{id}/events`, `Agent.stream` in a program.

An event is a JSON object with `type`, `payload`, `run_id`, `seq` (its place in the run, from 1, without a
gap) and `at` (seconds since 1970). A client that has seen `seq` 41 asks for the events after 41, and misses
none. The events marked with ∎ end a run, until a user resumes it.
"""

_KEYS = re.compile(r"(?:\w+|…)(?: \(`\w+`\))?(?:, (?:\w+|…)(?: \(`\w+`\))?)*")
_ENTRY = re.compile(r'^    "(\w+)",((?:\s*#[^\n]*\n)*)', re.MULTILINE)


def page() -> str:
    """Return the whole page."""
    return f"{_HEAD}\n{table(_rows())}\n"


def _rows() -> Iterator[tuple[str, ...]]:
    yield "type", "payload"
    told = {name: _payload(comment) for name, comment in _ENTRY.findall(getsource(events))}
    for name in get_args(EventType):
        yield f"`{name}`{' ∎' if name in FINAL_EVENTS else ''}", told[name]


def _payload(comment: str) -> str:
    """Return the comment as prose: the names of keys as code."""
    text = " ".join(line.strip().removeprefix("#").strip() for line in comment.splitlines())
    return "; ".join(_clause(clause) for clause in text.split("; "))


def _clause(text: str) -> str:
    """Format keys, with the text after a colon about the last of them or all."""
    keys, colon, about = text.partition(":")
    if not _KEYS.fullmatch(keys):
        return text
    about = re.sub(r"(?<=\], )(\w+)", r"`\1`", about)  # keys go on behind a list
    named = re.sub(r"[a-z_]+(?=,|$| [(])", r"`\g<0>`", keys)
    return f"{named}{colon}{about}"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
