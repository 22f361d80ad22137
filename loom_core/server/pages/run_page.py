"""The page of runs: what took time, what was said, what happened, in one file to be opened offline."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING

from loom_core.agent.notices import Notices
from loom_core.server.pages.page import asset, page
from loom_core.server.pages.run_data import runs_data
from loom_core.server.pages.run_record import Bounds, read_records

if TYPE_CHECKING:
    from loom_core.runs.journal import Journal
    from loom_core.runs.run import Run
    from loom_core.server.pages.run_record import RunRecord

__all__ = ["run_page", "runs_page"]

_HERE = "loom_core.server.pages"
_SCRIPTS = ("run_parts.js", "run_timeline.js", "run_conversation.js", "run_events.js", "run.js")
_BODY = """
<div id="page"></div>
<noscript><p class="empty">This page needs JavaScript. 此页面需要 JavaScript。</p></noscript>
"""


async def runs_page(
    journal: Journal,
    runs: Sequence[Run],
    *,
    program: str,
    more: bool = False,
    bounds: Bounds | None = None,
) -> str:
    """The page of some runs, with what they had others do, as they stand.

    Args:
        journal: where they are.
        runs: which; one alone is shown at once, several as a list.
        program: what is told to look for more runs.
        more: whether there are more of them, which are left out.
        bounds: how much the page holds.

    Raises:
        NotFoundError: one was forgotten meanwhile.
        RecordError: the journal cannot be read.
    """
    bounds = bounds or Bounds()
    records = await read_records(journal, runs, bounds=bounds)
    return run_page(records, now=time.time(), program=program, more=more, bounds=bounds)


def run_page(
    records: Sequence[RunRecord], *, now: float, program: str, more: bool = False, bounds: Bounds
) -> str:
    """The page of runs that were read; see `runs_page`.

    Args:
        records: the runs.
        now: the time, in seconds since 1970.
        program: as for `runs_page`.
        more: likewise.
        bounds: likewise.
    """
    title = records[0].run.id if len(records) == 1 else program
    return page(
        title=title,
        body=_BODY,
        css=[asset(_HERE, "run.css")],
        scripts=[asset(_HERE, name) for name in _SCRIPTS],
        data={
            "program": program,
            "now": now,
            "more": more,
            "roots": [record.run.id for record in records],
            "runs": runs_data(records, now=now, bounds=bounds),
            "words": json.loads(asset(_HERE, "run_words.json")),
            "sentences": list(Notices.of("zh").sentences.items()),
            "rule": [Notices.of("en").by_rule, Notices.of("zh").by_rule],
        },
    )
