"""The verbs `mcp login` and `mcp logout`: with a real browser's part played by a thread."""

from __future__ import annotations

import argparse
import json
import socket
import threading

import httpx2
import keyring
import keyring.backends.null
import pytest

from loom_core.errors import ConfigError, InvalidInputError, LoginError, NotFoundError, ServerError
from loom_core.server.install.command import Program
from loom_core.server.mcp_cli.login import log_in, log_out
from loom_core.server.mcp_cli.terminal import run_mcp_command
from loom_core.server.mcp_cli.trust import Prompter
from tests.fixtures.authorization import Authorization


@pytest.fixture(autouse=True)
def no_keyring():
    """Leaves the keyring of this machine alone."""
    before = keyring.get_keyring()
    keyring.set_keyring(keyring.backends.null.Keyring())
    yield
    keyring.set_keyring(before)


@pytest.fixture
def server(local_servers):
    return Authorization(local_servers())


@pytest.fixture
def home(tmp_path, server):
    """Loom's folder, with an entry for the server."""
    servers = {
        "知识": {"type": "http", "url": server.url, "loom": {"auth": "oauth"}},
        "open": {"type": "http", "url": server.url},
        "broken": {"type": "http", "url": "nowhere"},
    }
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers}), encoding="utf-8")
    return tmp_path


class Person:
    """Someone who opens what is shown to them."""

    def __init__(self):
        self.shown = []
        self.pages = []

    def show(self, text):
        self.shown.append(text)
        threading.Thread(target=self._browse, args=(text.rpartition(" ")[2],)).start()

    def _browse(self, url):
        self.pages.append(httpx2.get(url, follow_redirects=True).text)


def logged_in(home, name="知识", show=lambda _: None):
    return log_in(argparse.Namespace(name=name, no_browser=True), home=home, project=None, show=show)


def logged_out(home, name="知识"):
    return log_out(argparse.Namespace(name=name), home=home, project=None)


def test_a_person_logs_in_and_the_server_is_tried(home, server):
    server.metadata["scopes_supported"] = ["read"]
    person = Person()
    report = logged_in(home, show=person.show)

    assert report.lines == ["Logged in at '知识', which has 1 tools."]
    assert report.notes == ["Scope: read"]
    assert report.data == {"name": "知识", "asked": True, "scope": "read", "tools": 1}
    assert person.shown[0].startswith("Log in at 127.0.0.1 for '知识': ")


def test_a_second_login_is_a_new_one_of_the_same_client(home, server):
    person = Person()
    logged_in(home, show=person.show)
    logged_in(home, show=person.show)
    assert len(person.shown) == 2
    assert len(server.clients) == 1


def test_a_client_is_registered_again_where_its_port_is_taken(home, server):
    person = Person()
    logged_in(home, show=person.show)
    port = httpx2.URL(httpx2.URL(person.shown[0].rpartition(" ")[2]).params["redirect_uri"]).port
    with socket.create_server(("127.0.0.1", port)):
        logged_in(home, show=person.show)
    assert len(server.clients) == 2


def test_a_port_of_the_entry_is_used(home, server):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        entry = {"url": server.url, "loom": {"oauth": {"redirect_port": port}}}
        (home / "mcp.json").write_text(json.dumps({"mcpServers": {"知识": entry}}), encoding="utf-8")
        with pytest.raises(ConfigError, match=f"port {port}"):
            logged_in(home)
    person = Person()
    logged_in(home, show=person.show)
    assert f"127.0.0.1%3A{port}%2Fcallback" in person.shown[0]


def test_a_server_that_lets_everybody_in_is_told_so(home, server):
    server.tokens[""] = ""
    report = logged_in(home)
    assert report.lines == ["'知识' needs no login, and has 1 tools: there was nothing to log in at."]


def test_a_login_that_is_refused_says_why(home, server):
    server.denies = True
    with pytest.raises(LoginError, match="was refused: 张三 said no"):
        logged_in(home, show=Person().show)


def test_a_server_that_is_not_there_is_told(home, server):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    moved = (home / "mcp.json").read_text(encoding="utf-8").replace(f":{server.local.port}/", f":{port}/")
    (home / "mcp.json").write_text(moved, encoding="utf-8")
    with pytest.raises(ServerError, match=r"does not answer|cannot be reached|refuse"):
        logged_in(home)


@pytest.mark.parametrize(
    ("name", "kind", "words"),
    [
        ("知", NotFoundError, "There is no server '知'"),
        ("open", InvalidInputError, 'write "loom": {"auth": "oauth"}'),
        ("broken", ConfigError, r"mcp\.json:1:\d+: "),
    ],
)
def test_what_no_one_can_log_in_at_is_told(home, name, kind, words):
    with pytest.raises(kind, match=words):
        logged_in(home, name)
    with pytest.raises(kind, match=words):
        logged_out(home, name)


def test_a_login_is_forgotten(home):
    logged_in(home, show=Person().show)
    assert logged_out(home).lines == ["The login at '知识' is forgotten on this machine."]
    assert logged_out(home).lines == ["There was no login at '知识'."]


def test_a_login_goes_with_its_entry(home):
    logged_in(home, show=Person().show)
    program = Program(name="loom-query-server", module="loom_query", description="")
    asking = Prompter(show=lambda _: None, confirm=lambda _: False)
    line = argparse.Namespace(action="remove", name="知识")
    report = run_mcp_command(program, line, (), home=home, prompter=asking)
    assert report.notes[0] == "The login at '知识' is forgotten on this machine."
    assert list((home / "oauth").glob("*.json")) == []
