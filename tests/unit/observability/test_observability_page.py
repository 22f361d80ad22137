"""Every name in docs/observability.md exists. (Its blocks are run by tests/docs.)"""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_PAGE = (_ROOT / "docs" / "observability.md").read_text(encoding="utf-8")


def test_the_files_that_it_names_are_there() -> None:
    named = set(re.findall(r"`(deploy/[\w./-]+)`", _PAGE)) | set(re.findall(r"`python (\S+\.py)`", _PAGE))
    assert {"deploy/grafana/loom.json", "deploy/prometheus/loom-alerts.yml"} <= named
    assert all((_ROOT / name).is_file() for name in named)
    linked = re.findall(r"\]\(([\w./-]+\.md)", _PAGE)
    assert all((_ROOT / "docs" / name).is_file() for name in linked)
