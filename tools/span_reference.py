"""Writes docs/reference/spans.md: every span of Loom's traces, with its attributes.

    python -m tools.reference span

The page is made from the table in loom_core/observability/spans.py; a test compares it with the file.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from loom_core.observability.spans import ATTRIBUTES, SPANS, SpanForm
from loom_core.observability.tracing import CONTENT_VARIABLE
from tools.provider_reference import table

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "spans.md"

_HEAD = f"""\
# Spans

Made by `python -m tools.reference` from the code; do not edit.

The spans of [traces](../observability.md#traces), from the outside in. Names follow the semantic
conventions of OpenTelemetry for generative AI and MCP; `retrieval.…` and `loom.…` are Loom's own. In a name,
`{{…}}` stands for the value of an attribute. Attributes without a value are omitted. Those
marked with † hold texts of people or models, and are recorded with `{CONTENT_VARIABLE}=1` only.
"""


def page() -> str:
    """Return the page."""
    parts = [_HEAD, _overview(), *(_part(form) for form in SPANS)]
    return "\n".join(parts)


def _overview() -> str:
    rows = [("span", "kind", "made by"), *((f"`{f.shown}`", f.kind, f"`{f.scope}`") for f in SPANS)]
    return table(rows) + "\n"


def _part(form: SpanForm) -> str:
    return f"## `{form.shown}`\n\n{form.about}\n\n{table(_rows(form))}\n"


def _rows(form: SpanForm) -> Iterator[tuple[str, ...]]:
    yield "attribute", "value", "meaning"
    for name in form.attributes:
        attribute = ATTRIBUTES[name]
        yield f"`{name}`{' †' if attribute.content else ''}", attribute.type, f"{attribute.about}."


if __name__ == "__main__":
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")
