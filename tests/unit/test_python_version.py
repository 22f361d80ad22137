"""The Python that every server asks for."""

from __future__ import annotations

import runpy
import sys

import pytest

from loom_core.python_version import require_python


def test_this_python_will_do():
    require_python("loom-kb")


@pytest.mark.parametrize(
    ("module", "program"),
    [
        ("loom_kb", "loom-kb"),
        ("loom_query", "loom-query-server"),
        ("loom_agent", "loom-agent-server"),
        ("loom_flow", "loom-flow-server"),
    ],
)
def test_an_older_one_is_told_by_each_server_in_two_lines(module, program, monkeypatch):
    main = runpy.run_module(f"{module}.__main__")["main"]
    monkeypatch.setattr(sys, "version_info", (3, 9, 18))
    with pytest.raises(SystemExit) as ended:
        main()
    assert str(ended.value).splitlines() == [
        f"{program} needs Python 3.11 or newer, and this is 3.9.",
        f"  Install it with another Python: uv tool install --python 3.12 {program}",
    ]
