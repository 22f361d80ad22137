"""Importing Loom switches the telemetry of dependencies off, before any of them is imported."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from loom_core import TELEMETRY_SWITCHES
from loom_core.tools.environment import child_environment

_SHOW = "import json, os; print(json.dumps(dict(os.environ)))"
_IMPORT = "import subprocess, sys, loom_core; subprocess.run([sys.executable, '-c', sys.argv[1]], check=True)"


def _clean(**added: str) -> dict[str, str]:
    return {**{name: os.environ[name] for name in os.environ if name not in TELEMETRY_SWITCHES}, **added}


def _run(program: str, *arguments: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program, *arguments]
    return subprocess.run(
        command, env=env, capture_output=True, text=True, encoding="utf-8", check=True, timeout=60
    )


@pytest.mark.parametrize("given", [{}, {"ORT_DISABLE_TELEMETRY": ""}], ids=["unset", "empty"])
def test_it_is_off_in_the_process_that_imports_loom_and_in_its_children(given: dict[str, str]):
    seen = json.loads(_run(_IMPORT, _SHOW, env=_clean(**given)).stdout)
    assert {name: seen.get(name) for name in TELEMETRY_SWITCHES} == TELEMETRY_SWITCHES


def test_what_the_user_has_set_stays():
    seen = json.loads(_run(_IMPORT, _SHOW, env=_clean(ORT_DISABLE_TELEMETRY="0")).stdout)
    assert seen["ORT_DISABLE_TELEMETRY"] == "0"


def test_a_program_that_imports_onnxruntime_first_is_told_that_it_is_too_late():
    program = "import sys; sys.modules['onnxruntime'] = sys; import loom_core"
    told = _run(program, env=_clean()).stderr
    assert "onnxruntime was imported before loom_core" in told
    assert "set ORT_DISABLE_TELEMETRY=1" in told
    assert _run(program, env=_clean(ORT_DISABLE_TELEMETRY="1")).stderr == ""


def test_mcp_servers_that_loom_starts_inherit_the_switches_and_a_user_s_do_not_track():
    ours = {**TELEMETRY_SWITCHES, "DO_NOT_TRACK": "1", "OPENAI_API_KEY": "secret"}
    assert child_environment({}, environment=ours) == {**TELEMETRY_SWITCHES, "DO_NOT_TRACK": "1"}
    assert child_environment({"ORT_DISABLE_TELEMETRY": "0"}, environment=ours)["ORT_DISABLE_TELEMETRY"] == "0"
