"""Authorization servers that lie, lead elsewhere or answer nonsense: no token is got, and none is shown."""

from __future__ import annotations

import json
import logging
from contextlib import suppress

import pytest

from loom_core.errors import LoginError, NetError
from tests.fixtures.logins import ask, entry, keep, oauth_auth


@pytest.mark.hostile("tokens")
async def test_an_answer_of_another_issuer_is_refused(server, person, home):
    server.iss = "https://evil.example"
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert "iss mismatch" in auth.problem.message
    assert server.asked("/token") == []


@pytest.mark.hostile("tokens")
async def test_without_pkce_there_is_no_login(server, person, home):
    server.metadata["code_challenge_methods_supported"] = ["plain"]
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert "PKCE" in auth.problem.message
    assert person.visited == []


@pytest.mark.hostile("tokens")
async def test_no_secret_is_sent_without_encryption_to_another_machine(server, person, home):
    server.metadata["token_endpoint"] = "http://login.example/token"
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert "http://login.example, to which no secret may be sent" in auth.problem.message


@pytest.mark.hostile("tokens")
async def test_a_person_is_sent_to_no_page_without_encryption(server, person, home):
    server.metadata["authorization_endpoint"] = "http://login.example/authorize"
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert "http://login.example, to which no secret may be sent" in auth.problem.message
    assert person.visited == []


@pytest.mark.hostile("tokens")
async def test_a_login_that_leads_in_circles_ends(server, person, home):
    def lead_on(asked, connection):
        where = server.local.url("/.well-known/oauth-authorization-server")
        lines = ["HTTP/1.1 302 Found", f"Location: {where}?again", "Connection: close", "Content-Length: 0"]
        connection.sendall("\r\n".join([*lines, "", ""]).encode())

    server.local.routes["/.well-known/oauth-authorization-server"] = lead_on
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert "redirects" in auth.problem.message


@pytest.mark.hostile("tokens")
async def test_a_server_cannot_lead_the_login_into_the_local_network(server, person, home):
    server.metadata["registration_endpoint"] = "https://192.168.1.1/register"
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert isinstance(auth.problem, NetError)


@pytest.mark.hostile("tokens")
async def test_no_log_and_no_message_shows_a_token(server, person, home, caplog):
    caplog.set_level(logging.DEBUG)
    body = json.dumps({"access_token": "verraten-1", "token_type": "mac"}).encode()
    server.local.answers("/token", body, content_type="application/json")
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert "Invalid token response" in auth.problem.message

    del server.local.routes["/token"]
    await keep(server, home)
    again = oauth_auth(entry(server), home)
    assert await ask(again, server) == 200
    told = caplog.text + str(auth.problem) + repr(vars(auth)) + repr(vars(again))
    assert "verraten-1" not in told
    assert not [token for token in (*server.tokens, *server.refreshing) if token in told]


_NO_METADATA = {
    "no JSON": b"<html>log in</html>",
    "no UTF-8": b'{"issuer": "\xff"}',
    "nested without end": b"[" * 100_000,
    "another kind": b"[1]",
    "nothing": b"",
    "other kinds": b'{"issuer": 7, "authorization_endpoint": [], "token_endpoint": {}, "access_token": 1}',
    "no addresses": b'{"issuer": "x", "authorization_endpoint": "\\u0000", "token_endpoint": "//"}',
    "a script": b'{"issuer": "x:y", "authorization_endpoint": "javascript:x", "token_endpoint": "file:///x"}',
    "half a surrogate pair": b'{"issuer": "\\ud800", "token_endpoint": "x", "access_token": "\\ud800"}',
    "a long list": b'{"scopes_supported": [' + b'"s",' * 100_000 + b'"s"]}',
    "more than is read": b" " * (2 << 20),
}


def _answers(body, *, status="200 OK"):
    head = f"HTTP/1.1 {status}\r\nConnection: close\r\nContent-Type: application/json\r\n"
    head = f"{head}Content-Length: {len(body)}\r\n\r\n"

    def answer(_asked, connection):
        with suppress(ConnectionError):  # who has read enough goes
            connection.sendall(head.encode() + body)

    return answer


@pytest.mark.hostile("tokens")
@pytest.mark.parametrize("body", _NO_METADATA.values(), ids=_NO_METADATA)
@pytest.mark.parametrize("place", ["oauth-authorization-server", "oauth-protected-resource/mcp", "/token"])
async def test_whatever_an_authorization_server_answers_is_told_and_leads_nowhere(
    server, person, home, place, body
):
    for other in ("openid-configuration", "oauth-protected-resource"):
        server.local.routes[f"/.well-known/{other}"] = _answers(b"", status="404 Not Found")
    server.local.routes[place if place == "/token" else f"/.well-known/{place}"] = _answers(body)
    auth = oauth_auth(entry(server), home, browser=person)
    status = await ask(auth, server)
    assert all(url.startswith(server.issuer) for url in person.visited)
    if status == 200:  # without metadata that can be read, the usual places are asked
        assert place != "/token"
    else:
        assert status == 401
        assert isinstance(auth.problem, LoginError | NetError)
