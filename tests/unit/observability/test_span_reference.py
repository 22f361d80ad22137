from __future__ import annotations

import runpy
from pathlib import Path

_TOOL = Path(__file__).parents[3] / "tools" / "span_reference.py"


def test_the_reference_is_what_the_code_says() -> None:
    tool = runpy.run_path(str(_TOOL))
    written = tool["PAGE"].read_text(encoding="utf-8")
    assert written == tool["page"](), "run: python -m tools.span_reference"
