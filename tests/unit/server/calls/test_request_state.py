"""The keys that seal the state of calls."""

from __future__ import annotations

import stat
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from mcp import Client

from loom_core.errors import ConfigError
from loom_core.server.calls.request_state import VARIABLE, SealedState, state_keys

pytestmark = pytest.mark.hostile("tokens")


@pytest.fixture(autouse=True)
def no_keys_in_the_environment(monkeypatch):
    monkeypatch.delenv(VARIABLE, raising=False)


def test_the_first_process_makes_the_key_that_all_use(tmp_path):
    home = tmp_path / "家"
    (key,) = state_keys(home)
    assert len(key) == 64
    assert state_keys(home) == [key]
    assert [path.name for path in home.iterdir()] == ["request-state.key"]


@pytest.mark.skipif(sys.platform == "win32", reason="POSIX permissions")
def test_no_one_else_can_read_the_key(tmp_path):
    state_keys(tmp_path)
    assert stat.S_IMODE((tmp_path / "request-state.key").stat().st_mode) == 0o600


def test_workers_that_start_at_once_agree_on_one_key(tmp_path):
    with ThreadPoolExecutor(8) as workers:
        keys = list(workers.map(lambda _: state_keys(tmp_path)[0], range(32)))
    assert len(set(keys)) == 1
    assert len(list(tmp_path.iterdir())) == 1


def test_keys_of_the_environment_come_first(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, f"{'a' * 32}, {'b' * 32}")
    assert state_keys(tmp_path) == ["a" * 32, "b" * 32]
    assert list(tmp_path.iterdir()) == []


def test_a_short_key_is_refused_and_not_shown(tmp_path, monkeypatch):
    monkeypatch.setenv(VARIABLE, "hunter2")
    with pytest.raises(ConfigError, match=f"A key in {VARIABLE} has fewer than 32") as caught:
        state_keys(tmp_path)
    assert "hunter2" not in str(caught.value)
    monkeypatch.delenv(VARIABLE)
    (tmp_path / "request-state.key").write_text("", encoding="ascii")
    with pytest.raises(ConfigError, match=r"request-state\.key has fewer than 32"):
        state_keys(tmp_path)


def test_a_home_that_cannot_be_written_is_told_and_does_no_harm(tmp_path, caplog):
    home = tmp_path / "file"
    home.write_text("", encoding="utf-8")
    assert state_keys(home) == ()
    assert "cannot keep the key of request states" in caplog.text


async def test_no_key_is_looked_for_until_a_call_asks_for_input(sample):
    def keys():
        raise AssertionError("no input was requested")

    sample.protocol.middleware.append(SealedState("sample", keys))
    async with Client(sample.protocol) as client:
        assert not (await client.call_tool("add", {"name": "notes"})).is_error
