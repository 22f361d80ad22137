"""Writes docs/reference/log-fields.md: the fields of the log.

    python -m tools.log_reference

The page is made from loom_core/observability/log_fields.py; a test compares it with the file.
"""

from __future__ import annotations

from pathlib import Path

from loom_core.observability.log_fields import LOG_FIELDS
from tools.provider_reference import table

PAGE = Path(__file__).parents[1] / "docs" / "reference" / "log-fields.md"

_HEAD = """\
# Fields of the log

Made by `python -m tools.log_reference` from the code; do not edit. How to read it:
[observability.md](../observability.md#logs).

With `--log-format json` every line on standard error is a JSON object with these fields, in this order;
fields without a value are omitted.
"""


def page() -> str:
    """Return the whole page."""
    rows = [("Field", "Meaning"), *((f"`{name}`", about) for name, about in LOG_FIELDS.items())]
    return f"{_HEAD}\n{table(rows)}\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
