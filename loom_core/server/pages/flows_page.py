"""HTML page of flows: their diagrams, for offline viewing."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from loom_core.redaction import Redaction
from loom_core.server.pages.page import asset, page

__all__ = ["flows_page"]

_HERE = "loom_core.server.pages"


def flows_page(flows: Mapping[str, Sequence[Mapping[str, Any]]], *, title: str) -> str:
    """Build the page of the flows of a file.

    Args:
        flows: the data for `flow_diagram.js` of each flow, by language (`en` and `zh`).
        title: title of the page.
    """
    drawn = Redaction.now().value(flows)
    return page(
        title=title,
        body='<div id="page"></div>',
        css=[asset(_HERE, "run.css"), asset(_HERE, "flow_diagram.css")],
        scripts=[asset(_HERE, name) for name in ("run_parts.js", "flow_diagram.js", "flows.js")],
        data={"title": title, "flows": drawn, "words": json.loads(asset(_HERE, "run_words.json"))},
    )
