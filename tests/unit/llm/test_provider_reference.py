from __future__ import annotations

import runpy
from pathlib import Path

import pytest

from loom_core.llm.vendors import VENDORS

_TOOL = Path(__file__).parents[3] / "tools" / "provider_reference.py"


def test_the_reference_is_what_the_code_says():
    tool = runpy.run_path(str(_TOOL))
    written = tool["PAGE"].read_text(encoding="utf-8")
    assert written == tool["page"](), "run: python -m tools.provider_reference"


@pytest.mark.parametrize("name", sorted(VENDORS))
def test_every_vendor_is_in_the_reference(name: str):
    page = _TOOL.parents[1] / "docs" / "reference" / "providers.md"
    assert f"| `{name}`: " in page.read_text(encoding="utf-8")
