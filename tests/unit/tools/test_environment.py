from __future__ import annotations

import subprocess
import sys

import pytest

from loom_core.tools.environment import child_environment


def test_a_child_gets_what_programs_need_and_no_key_of_ours() -> None:
    ours = {
        "PATH": "/bin", "LC_ALL": "zh_CN.UTF-8", "https_proxy": "http://proxy", "LOOM_HOME": "/家",
        "OPENAI_API_KEY": "secret", "AWS_SECRET_ACCESS_KEY": "secret", "PYTHONPATH": "/x",
    }  # fmt: skip
    child = child_environment({"MY_KEY": "mine", "PATH": "/other"}, environment=ours)
    assert child == {
        "PATH": "/other", "LC_ALL": "zh_CN.UTF-8", "https_proxy": "http://proxy", "LOOM_HOME": "/家",
        "MY_KEY": "mine",
    }  # fmt: skip


def test_functions_of_a_shell_stay_behind() -> None:
    assert child_environment({}, environment={"PATH": "() { :; }; evil"}) == {}


def test_python_runs_with_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    command = [sys.executable, "-c", "import os; print(os.environ.get('SOME_API_KEY'), os.environ['ADDED'])"]
    environment = child_environment({"ADDED": "新", "PYTHONIOENCODING": "utf-8"})
    done = subprocess.run(command, env=environment, capture_output=True, check=True)
    assert done.stdout.decode().split() == ["None", "新"]
