"""Logins at rest, where the system has a keyring and where it has none."""

from __future__ import annotations

import threading

import keyring
import pytest
from keyring.backend import KeyringBackend
from keyring.errors import KeyringLocked, NoKeyringError

from loom_core.errors import ConfigError
from loom_core.mcp_client.oauth.store import Encryption

LOGIN = '{"tokens": "茶"}'.encode()


class Entries(KeyringBackend):
    """A keyring in memory."""

    priority = -2  # the package keyring chooses among all classes that it sees

    def __init__(self, problem=None, entries=None):
        super().__init__()
        self.entries = {} if entries is None else entries
        self.problem = problem

    def get_password(self, service, username):
        if self.problem is not None:
            raise self.problem
        return self.entries.get((service, username))

    def set_password(self, service, username, password):
        self.entries[service, username] = password


@pytest.fixture
def use():
    """Sets the keyring of this process; gives it."""
    before = keyring.get_keyring()

    def set_to(backend):
        keyring.set_keyring(backend)
        return backend

    yield set_to
    keyring.set_keyring(before)


def test_what_is_closed_is_opened_by_the_next_process_and_unreadable_meanwhile(use, tmp_path):
    entries = use(Entries()).entries
    held = Encryption(tmp_path).encrypt(LOGIN)
    assert "茶".encode() not in held
    assert Encryption(tmp_path).decrypt(held) == LOGIN
    assert list(entries) == [("loom", "oauth-logins")]


def test_two_processes_at_once_use_one_key(use, tmp_path):
    entries = use(Entries()).entries
    held = []
    threads = [
        threading.Thread(target=lambda: held.append(Encryption(tmp_path).encrypt(LOGIN))) for _ in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(entries) == 1
    assert [Encryption(tmp_path).decrypt(each) for each in held] == [LOGIN] * 4


@pytest.mark.parametrize("problem", [NoKeyringError(), KeyringLocked("detail")])
def test_without_a_keyring_both_stay_as_they_are(use, tmp_path, problem):
    use(Entries(problem))
    assert Encryption(tmp_path).encrypt(LOGIN) == LOGIN
    assert Encryption(tmp_path).decrypt(LOGIN) == LOGIN


def test_a_keyring_that_keeps_nothing_counts_as_none(use, tmp_path):
    class Forgetful(Entries):
        priority = -2

        def set_password(self, service, username, password):
            pass

    use(Forgetful())
    assert Encryption(tmp_path).encrypt(LOGIN) == LOGIN


def test_a_keyring_is_not_asked_where_it_is_not_to_be(use, tmp_path):
    assert Encryption(tmp_path, keyring=False).encrypt(LOGIN) == LOGIN
    entries = use(Entries()).entries
    assert Encryption(tmp_path, keyring=False).encrypt(LOGIN) == LOGIN
    assert entries == {}


def test_a_key_that_is_gone_is_told_with_what_to_do(use, tmp_path):
    use(Entries())
    held = Encryption(tmp_path).encrypt(LOGIN)
    use(Entries())
    with pytest.raises(ConfigError, match=r"does not have any more\. Log in again"):
        Encryption(tmp_path).decrypt(held)
    use(Entries(NoKeyringError()))
    with pytest.raises(ConfigError, match="is not available"):
        Encryption(tmp_path).decrypt(held)


@pytest.mark.hostile("tokens")
def test_an_entry_that_is_no_key_is_told_without_showing_it(use, tmp_path):
    use(Entries(entries={("loom", "oauth-logins"): "verraten"}))
    with pytest.raises(ConfigError, match="keyring del loom oauth-logins") as caught:
        Encryption(tmp_path).encrypt(LOGIN)
    assert "verraten" not in str(caught.value)
