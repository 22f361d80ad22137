"""Links on the site that leave docs/ are moved; all others are checked by its build, `.ci/run docs`."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tools import docs_site

_ROOT = Path(__file__).parents[2]


def _moved(text: str, page: str) -> str:
    at = SimpleNamespace(abs_src_path=str(_ROOT / page), src_uri=docs_site._on_site(_ROOT / page))
    shown: Any = SimpleNamespace(file=at)
    nothing: Any = None
    return docs_site.on_page_markdown(text, shown, nothing, nothing)


@pytest.mark.parametrize(
    ("page", "link", "moved"),
    [
        ("docs/security.md", "../SECURITY.md#earlier-versions", "repository/SECURITY.md#earlier-versions"),
        ("docs/howto/scale.md", "../../benchmarks/RESULTS.md", "../repository/benchmarks/RESULTS.md"),
        ("docs/howto/scale.md", "../server.md#limits", "../server.md#limits"),
        ("docs/howto/scale.md", "#sizes", "#sizes"),
        ("docs/howto/scale.md", "https://spec.example/a.md", "https://spec.example/a.md"),
        ("SECURITY.md", "docs/server.md", "../server.md"),
        ("SECURITY.md", "CHANGELOG.md", "CHANGELOG.md"),
    ],
)
def test_a_link_leads_to_where_its_file_lies_on_the_site(page: str, link: str, moved: str) -> None:
    assert _moved(f"See [this]({link}).", page) == f"See [this]({moved})."
