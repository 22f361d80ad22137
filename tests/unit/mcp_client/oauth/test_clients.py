"""Who a client says it is, what it proves that with, and the scopes that it asks for."""

from __future__ import annotations

import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from loom_core.errors import LoginError
from tests.fixtures.logins import ask, entry, keep, oauth_auth


async def test_scopes_that_a_call_wants_are_asked_for_besides_those_there_are(server, person, home):
    server.metadata["scopes_supported"] = ["read"]
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 200
    server.scopes = {"write"}
    assert await ask(auth, server) == 200

    assert set(person.asked_for()["scope"].split()) == {"read", "write"}
    assert len(server.clients) == 1  # it is not registered again


async def test_scopes_that_no_one_can_be_asked_for_are_asked_for_at_the_next_login(server, person, home):
    await keep(server, home, scope="read")
    server.scopes = {"write"}
    running = oauth_auth(entry(server), home)
    assert await ask(running, server) == 403
    assert running.problem.message == "The login at '知识' does not allow this: the server wants 'write'."

    assert await ask(oauth_auth(entry(server), home, browser=person), server) == 200
    assert set(person.asked_for()["scope"].split()) == {"read", "write"}
    assert await ask(running, server) == 200


@pytest.mark.hostile("tokens")
async def test_a_server_that_is_never_content_is_not_asked_for_ever(server, person, home):
    server.scopes = {"admin"}
    server.metadata["scopes_supported"] = ["read"]
    auth = oauth_auth(entry(server), home, browser=person)
    issue = server.issue
    server.issue = lambda scope="": issue("read")

    for _ in range(3):
        assert await ask(auth, server) == 403
    assert len(person.visited) == 2  # the first token, and one attempt to get more
    assert "refuses a token that is new" in auth.problem.message


@pytest.mark.hostile("tokens")
async def test_tokens_that_never_do_are_not_got_again_and_again(server, home):
    server.clients["service"] = "geheim"
    config = entry(
        server,
        grant="client_credentials",
        client_id="service",
        client_secret="geheim",
        issuer=server.issuer,
    )
    server.scopes = {"admin"}
    issue = server.issue
    server.issue = lambda scope="": issue("read")
    auth = oauth_auth(config, home)

    for _ in range(3):
        assert await ask(auth, server) == 403
    assert len(server.forms("client_credentials")) == 2


async def test_scopes_of_the_entry_are_asked_for(server, person, home):
    assert (
        await ask(oauth_auth(entry(server, scopes=("读", "offline_access")), home, browser=person), server)
        == 200
    )
    assert person.asked_for()["scope"] == "读 offline_access"


@pytest.mark.hostile("tokens")
async def test_a_client_that_is_registered_already_is_not_registered(server, person, home):
    server.clients["桌面"] = "geheim & co"
    config = entry(server, client_id="桌面", client_secret="geheim & co", issuer=server.issuer)
    assert await ask(oauth_auth(config, home, browser=person), server) == 200
    assert server.asked("/register") == []
    assert person.asked_for()["client_id"] == "桌面"


@pytest.mark.hostile("tokens")
async def test_the_secret_of_a_client_goes_to_its_own_authorization_server_only(server, person, home):
    config = entry(server, client_id="laptop", client_secret="geheim", issuer="https://login.example/")
    auth = oauth_auth(config, home, browser=person)
    assert await ask(auth, server) == 401
    assert "another authorization server than 'https://login.example/'" in auth.problem.message
    assert server.asked("/register") == server.asked("/token") == []


@pytest.mark.hostile("tokens")
async def test_the_secret_of_a_client_does_not_go_to_the_authorization_server_of_an_earlier_login(
    server, person, home
):
    assert await ask(oauth_auth(entry(server), home, browser=person), server) == 200
    server.tokens.clear()
    config = entry(server, client_id="laptop", client_secret="geheim", issuer="https://login.example/")
    auth = oauth_auth(config, home)
    assert await ask(auth, server) == 401
    assert "has ended" in auth.problem.message
    assert server.forms("refresh_token") == []


async def test_a_client_that_is_registered_with_a_secret_renews_its_login(server, person, home):
    server.clients["桌面"] = "geheim & co"
    config = entry(server, client_id="桌面", client_secret="geheim & co", issuer=server.issuer)
    assert await ask(oauth_auth(config, home, browser=person), server) == 200
    server.tokens.clear()
    assert await ask(oauth_auth(config, home), server) == 200
    assert len(server.forms("refresh_token")) == 1


async def test_a_client_describes_itself_by_a_document_where_that_is_read(server, person, home):
    server.metadata["client_id_metadata_document_supported"] = True
    address = "https://loom.example/client.json"
    server.clients[address] = ""
    assert (
        await ask(oauth_auth(entry(server, client_metadata_url=address), home, browser=person), server) == 200
    )
    assert person.asked_for()["client_id"] == address
    assert server.asked("/register") == []


@pytest.mark.parametrize("proof_in", ["header", "body"])
async def test_a_client_gets_tokens_for_itself_and_again_when_they_end(server, home, proof_in):
    server.clients["service"] = "geheim"
    config = entry(
        server,
        grant="client_credentials",
        client_id="service",
        client_secret="geheim",
        proof_in=proof_in,
        issuer=server.issuer,
        scopes=("read",),
    )
    auth = oauth_auth(config, home)
    assert await ask(auth, server) == 200
    server.tokens.clear()
    server.refreshing.clear()
    assert await ask(auth, server) == 200
    assert [form["scope"] for form in server.forms("client_credentials")] == ["read", "read"]


async def test_a_client_signs_who_it_is(server, home):
    import jwt

    private = ec.generate_private_key(ec.SECP256R1())
    pem = private.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
    config = entry(
        server,
        grant="client_credentials",
        client_id="service",
        private_key=pem,
        algorithm="ES256",
        issuer=server.issuer,
    )
    server.clients[""] = ""  # the assertion says who it is
    assert await ask(oauth_auth(config, home), server) == 200
    (form,) = server.forms("client_credentials")
    claims = jwt.decode(
        form["client_assertion"], private.public_key(), algorithms=["ES256"], audience=server.issuer
    )
    assert claims["sub"] == "service"


@pytest.mark.hostile("tokens")
async def test_a_key_that_is_none_is_told_without_showing_it(server, home):
    config = entry(
        server,
        grant="client_credentials",
        client_id="service",
        private_key="-----BEGIN PRIVATE KEY-----\nverraten\n-----END PRIVATE KEY-----",
        issuer=server.issuer,
    )
    auth = oauth_auth(config, home)
    assert await ask(auth, server) == 401
    assert isinstance(auth.problem, LoginError)
    assert "verraten" not in str(auth.problem)
