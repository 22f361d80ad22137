from __future__ import annotations

import gc
import subprocess
import sys

import pytest

from loom_core.errors import ConfigError
from loom_core.server.http import HttpSettings
from loom_core.server.run import serve


@pytest.fixture(autouse=True)
def collected():
    """Undoes what is meant for the whole life of a process."""
    switching = sys.getswitchinterval()
    yield
    sys.setswitchinterval(switching)
    gc.unfreeze()


def test_an_interrupt_while_the_server_is_built_is_an_end_without_a_traceback():
    def build():
        assert not gc.isenabled()
        raise KeyboardInterrupt

    serve(build, http=HttpSettings())

    assert gc.isenabled()


def test_a_thread_that_computes_gives_way_to_questions_at_once():
    intervals: list[float] = []

    def build():
        intervals.append(sys.getswitchinterval())
        raise KeyboardInterrupt

    serve(build, http=HttpSettings())

    assert intervals == [pytest.approx(0.0005)]


def test_a_host_that_is_refused_is_a_configuration_error(sample_server):
    with pytest.raises(ConfigError, match=r"does not listen on '0\.0\.0\.0'"):
        serve(sample_server, http=HttpSettings(host="0.0.0.0"))


def test_a_key_of_the_environment_that_is_too_short_is_told_at_the_start(sample_server, monkeypatch):
    monkeypatch.setenv("LOOM_STATE_KEYS", f"{'a' * 32},hunter2")
    with pytest.raises(ConfigError, match="A key in LOOM_STATE_KEYS has fewer than 32"):
        serve(sample_server, http=HttpSettings(port=0))


def test_importing_the_entry_loads_nothing_that_could_print(sample_command):
    code = "import sys, loom_core.server.run; print({'mcp', 'anyio', 'pydantic'} & set(sys.modules))"
    result = subprocess.run([sample_command[0], "-c", code], capture_output=True, text=True, check=True)

    assert result.stdout == "set()\n"
