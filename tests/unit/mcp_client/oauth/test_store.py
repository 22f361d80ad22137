"""The login of a server in its file: for this user only, whole, and changed by one process at a time."""

from __future__ import annotations

import stat
import sys
import time

import anyio
import pytest
from pydantic import SecretStr

from loom_core.errors import ConfigError, StoreBusyError
from loom_core.mcp_client.oauth.store import Login, LoginStore, Registration, Tokens

URL = "https://kb.example/mcp"
LOGIN = Login(
    registration=Registration(
        client_id="笔记本", client_secret=SecretStr("geheim"), issuer="https://login.example"
    ),
    tokens=Tokens(
        access=SecretStr("eins"), refresh=SecretStr("zwei"), endpoint="https://login.example/token"
    ),
    wanted="write",
)


@pytest.fixture
def store(tmp_path):
    return LoginStore(tmp_path / "home", "知识", URL, keyring=False)


async def written(store, login=LOGIN):
    async with store.exclusive(5):
        store.write(login)


async def test_what_is_kept_is_found_by_the_next_process(store, tmp_path):
    assert store.read() == Login()
    await written(store)
    assert LoginStore(tmp_path / "home", "知识", URL, keyring=False).read() == LOGIN


async def test_another_name_or_address_has_another_login(store, tmp_path):
    await written(store)
    assert LoginStore(tmp_path / "home", "工作", URL, keyring=False).read() == Login()
    assert LoginStore(tmp_path / "home", "知识", "https://kb.example/other", keyring=False).read() == Login()


@pytest.mark.hostile("tokens")
@pytest.mark.skipif(sys.platform == "win32", reason="Windows has other rights")
async def test_only_the_user_may_read_it(store):
    await written(store)
    assert stat.S_IMODE(store.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(store.path.parent.stat().st_mode) == 0o700


async def test_forgetting_says_whether_there_was_a_login(store):
    await written(store)
    async with store.exclusive(5):
        assert store.forget()
        assert not store.forget()
    assert store.read() == Login()


@pytest.mark.hostile("tokens")
async def test_nothing_shows_a_secret(store):
    shown = f"{LOGIN!r} {LOGIN} {LOGIN.model_dump_json()}"
    assert not [secret for secret in ("geheim", "eins", "zwei") if secret in shown]


@pytest.mark.hostile("tokens")
async def test_a_broken_file_is_told_without_showing_it(store):
    await written(store)
    store.path.write_text('{"version": 1, "tokens": {"access": "verraten"', encoding="utf-8")
    with pytest.raises(ConfigError, match="cannot be read: it was not written by Loom") as caught:
        store.read()
    assert "verraten" not in str(caught.value)


async def test_a_process_waits_for_another_one_and_not_for_ever(store):
    store.path.parent.mkdir(parents=True)
    program = (
        "import sys; from pathlib import Path; from loom_core.storage.lock import ProcessLock;"
        "assert ProcessLock(Path(sys.argv[1])).acquire(); print('held', flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-c", program, str(store.path.with_suffix(".lock"))]
    async with await anyio.open_process(command) as holder:
        assert (await holder.stdout.receive()).startswith(b"held")
        with pytest.raises(StoreBusyError, match=r"has been logging in at '知识' for 0\.1 seconds"):
            async with store.exclusive(0.1):
                pass
        await holder.stdin.aclose()
        assert await holder.wait() == 0
    await written(store)


@pytest.mark.parametrize(("left", "fresh"), [(None, True), (3600, True), (10, False), (-1, False)])
def test_a_token_is_not_used_shortly_before_its_end(left, fresh):
    end = None if left is None else time.time() + left
    tokens = Tokens(access=SecretStr("eins"), expires=end, endpoint="https://login.example/token")
    assert tokens.fresh is fresh
