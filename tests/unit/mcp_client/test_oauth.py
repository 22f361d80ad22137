"""Requests to a server that wants OAuth: tokens are kept, renewed, and neither shown nor led astray."""

from __future__ import annotations

import json
import logging
import time
from pathlib import Path

import anyio
import httpx2
import pytest
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import SecretStr

from loom_core.errors import LoginError, NetError
from loom_core.mcp_client.config import ServerConfig
from loom_core.mcp_client.oauth import oauth_auth as _oauth_auth
from loom_core.mcp_client.oauth_config import OAuthConfig
from loom_core.mcp_client.oauth_store import Login, LoginStore, Registration, Tokens

FIXTURES = Path(__file__).parents[2] / "fixtures"


@pytest.fixture
def fake(load):
    return load(FIXTURES / "authorization.py")


@pytest.fixture
def server(local_servers, fake):
    """An authorization server, and the endpoint that it guards."""
    return fake.Authorization(local_servers())


@pytest.fixture
def person(fake):
    return fake.Person()


@pytest.fixture
def home(tmp_path):
    return tmp_path / "home"


def oauth_auth(config, home, **options):
    """As in a process on a machine without a keyring."""
    return _oauth_auth(config, home, keyring=False, **options)


def entry(server, **oauth):
    settings = OAuthConfig(**oauth) if oauth else None
    return ServerConfig(name="知识", transport="http", url=server.url, auth="oauth", oauth=settings)


def store(server, home):
    return LoginStore(home, "知识", server.url, keyring=False)


async def keep(server, home, *, expires=None, **tokens):
    """Let there be a login already; gives its access token."""
    access, refresh = server.issue(tokens.get("scope", ""))
    login = Login(
        registration=Registration(client_id="laptop", method="none", issuer=server.issuer),
        tokens=Tokens(
            access=SecretStr(access),
            refresh=SecretStr(refresh),
            expires=expires,
            endpoint=f"{server.issuer}/token",
            resource=server.url,
            **tokens,
        ),
    )
    server.clients["laptop"] = ""
    kept = store(server, home)
    async with kept.alone(5):
        kept.write(login)
    return access


async def ask(auth, server, path="/mcp"):
    """The status that a request is answered with."""
    async with httpx2.AsyncClient(verify=False, auth=auth) as client:
        return (await client.post(server.local.url(path), json={"q": "茶"})).status_code


def test_a_server_without_oauth_needs_nothing(home):
    config = ServerConfig(name="open", transport="http", url="https://open.example/mcp")
    assert oauth_auth(config, home) is None


async def test_a_person_logs_in_and_the_next_process_needs_nobody(server, person, home):
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 200
    assert auth.problem is None

    asked = person.asked_for()
    assert asked["code_challenge_method"] == "S256"
    assert asked["resource"] == server.url
    assert [form["resource"] for form in server.forms("authorization_code")] == [server.url]
    assert await ask(oauth_auth(entry(server), home), server) == 200
    assert len(person.visited) == 1


async def test_one_login_serves_requests_that_come_at_once(server, person, home):
    auth = oauth_auth(entry(server), home, browser=person)
    statuses = []

    async def once():
        statuses.append(await ask(auth, server))

    async with anyio.create_task_group() as requests:
        for _ in range(5):
            requests.start_soon(once)

    assert statuses == [200] * 5
    assert len(person.visited) == 1


async def test_without_a_person_the_answer_is_the_refusal_and_the_problem_says_what_to_do(server, home):
    auth = oauth_auth(entry(server), home)
    assert await ask(auth, server) == 401
    assert auth.problem.message == "Nobody has logged in at '知识'."
    assert "`loom-query-server mcp login 知识`" in auth.problem.advice


async def test_a_login_in_another_process_is_noticed(server, person, home):
    running = oauth_auth(entry(server), home)
    assert await ask(running, server) == 401
    assert await ask(oauth_auth(entry(server), home, browser=person), server) == 200
    assert await ask(running, server) == 200
    assert running.problem is None


async def test_a_token_at_its_end_is_renewed_before_it_is_used(server, home):
    old = await keep(server, home, expires=time.time() - 1)
    del server.tokens[old]

    assert await ask(oauth_auth(entry(server), home), server) == 200
    assert len(server.asked("/mcp")) == 1
    (form,) = server.forms("refresh_token")
    assert form["resource"] == server.url


async def test_a_token_that_is_refused_is_renewed_and_the_request_made_again(server, home):
    del server.tokens[await keep(server, home)]

    assert await ask(oauth_auth(entry(server), home), server) == 200
    assert [asked.body for asked in server.asked("/mcp")] == [b'{"q":"\xe8\x8c\xb6"}'] * 2


async def test_two_processes_renew_once(server, home):
    del server.tokens[await keep(server, home, expires=time.time() - 1)]
    processes = [oauth_auth(entry(server), home) for _ in range(4)]
    statuses = []

    async def once(auth):
        statuses.append(await ask(auth, server))

    async with anyio.create_task_group() as requests:
        for auth in processes:
            requests.start_soon(once, auth)

    assert statuses == [200] * 4
    assert len(server.forms("refresh_token")) == 1


@pytest.mark.parametrize("proof_in", ["header", "body"])
async def test_a_client_with_a_secret_renews_with_the_secret_of_the_entry(server, home, proof_in):
    del server.tokens[await keep(server, home)]
    server.clients["桌面"] = "geheim & co"
    config = entry(
        server, client_id="桌面", client_secret="geheim & co", proof_in=proof_in, issuer=server.issuer
    )
    assert await ask(oauth_auth(config, home), server) == 200
    assert "geheim & co" not in store(server, home).path.read_text(encoding="utf-8")


async def test_an_answer_to_a_renewal_that_is_none_ends_the_login(server, home):
    del server.tokens[await keep(server, home)]
    server.local.answers("/token", b"<html>", content_type="text/html")
    auth = oauth_auth(entry(server), home)
    assert await ask(auth, server) == 401
    assert auth.problem.message == "The login at '知识' has ended."


async def test_a_refresh_token_that_is_refused_ends_the_login_and_is_not_tried_again(server, home):
    del server.tokens[await keep(server, home)]
    server.refuses = 400
    auth = oauth_auth(entry(server), home)

    assert await ask(auth, server) == 401
    assert auth.problem.message == "The login at '知识' has ended."
    assert await ask(auth, server) == 401
    assert len(server.forms("refresh_token")) == 1


async def test_an_authorization_server_out_of_order_costs_no_login(server, home):
    del server.tokens[await keep(server, home)]
    server.refuses = 503
    auth = oauth_auth(entry(server), home)
    assert await ask(auth, server) == 401
    assert "does not renew the login now" in auth.problem.message

    server.refuses = 0
    assert await ask(auth, server) == 200
    assert auth.problem is None


async def test_a_login_that_cannot_be_read_is_made_anew(server, person, home):
    await keep(server, home)
    store(server, home).path.write_text("{", encoding="utf-8")
    running = oauth_auth(entry(server), home)
    assert await ask(running, server) == 401
    assert "cannot be read" in running.problem.message

    assert await ask(oauth_auth(entry(server), home, browser=person), server) == 200
    assert await ask(running, server) == 200


async def test_tokens_go_to_the_origin_of_the_server_only(server, home, local_servers):
    await keep(server, home)
    other = local_servers()
    other.answers("/elsewhere")
    async with httpx2.AsyncClient(verify=False, auth=oauth_auth(entry(server), home)) as client:
        await client.get(other.url("/elsewhere"))
        await client.get(server.local.url("/mcp", host="localhost"))

    assert "authorization" not in other.asked[0].headers
    assert "authorization" not in server.asked("/mcp")[0].headers


async def test_an_entry_with_another_address_has_no_login(server, home):
    await keep(server, home)
    moved = entry(server).model_copy(update={"url": server.local.url("/mcp", host="localhost")})
    async with httpx2.AsyncClient(verify=False, auth=oauth_auth(moved, home)) as client:
        assert (await client.post(moved.url)).status_code == 401
    assert "authorization" not in server.asked("/mcp")[0].headers


async def test_scopes_that_a_call_wants_are_asked_for_besides_those_there_are(server, person, home):
    server.metadata["scopes_supported"] = ["read"]
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 200
    server.scopes = {"write"}
    assert await ask(auth, server) == 200

    assert set(person.asked_for()["scope"].split()) == {"read", "write"}
    assert len(server.clients) == 1  # it is not registered again


async def test_scopes_that_nobody_can_be_asked_for_are_asked_for_at_the_next_login(server, person, home):
    await keep(server, home, scope="read")
    server.scopes = {"write"}
    running = oauth_auth(entry(server), home)
    assert await ask(running, server) == 403
    assert running.problem.message == "The login at '知识' does not allow this: the server wants 'write'."

    assert await ask(oauth_auth(entry(server), home, browser=person), server) == 200
    assert set(person.asked_for()["scope"].split()) == {"read", "write"}
    assert await ask(running, server) == 200


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


async def test_a_client_that_is_registered_already_is_not_registered(server, person, home):
    server.clients["桌面"] = "geheim & co"
    config = entry(server, client_id="桌面", client_secret="geheim & co", issuer=server.issuer)
    assert await ask(oauth_auth(config, home, browser=person), server) == 200
    assert server.asked("/register") == []
    assert person.asked_for()["client_id"] == "桌面"


async def test_the_secret_of_a_client_goes_to_its_own_authorization_server_only(server, person, home):
    config = entry(server, client_id="laptop", client_secret="geheim", issuer="https://login.example/")
    auth = oauth_auth(config, home, browser=person)
    assert await ask(auth, server) == 401
    assert "another authorization server than 'https://login.example/'" in auth.problem.message
    assert server.asked("/register") == server.asked("/token") == []


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


async def test_an_answer_of_another_issuer_is_refused(server, person, home):
    server.iss = "https://evil.example"
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert "iss mismatch" in auth.problem.message
    assert server.asked("/token") == []


async def test_a_person_who_says_no_is_told_so(server, person, home):
    server.denies = True
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert await ask(auth, server) == 401
    assert auth.problem.message == "The login at '知识' was refused: 张三 said no."
    assert len(person.visited) == 1


async def test_without_pkce_there_is_no_login(server, person, home):
    server.metadata["code_challenge_methods_supported"] = ["plain"]
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert "PKCE" in auth.problem.message
    assert person.visited == []


async def test_no_secret_is_sent_without_encryption_to_another_machine(server, person, home):
    server.metadata["token_endpoint"] = "http://login.example/token"
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert "http://login.example, where no secret may be sent" in auth.problem.message


async def test_a_person_is_sent_to_no_page_without_encryption(server, person, home):
    server.metadata["authorization_endpoint"] = "http://login.example/authorize"
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert "http://login.example, where no secret may be sent" in auth.problem.message
    assert person.visited == []


async def test_a_login_that_leads_in_circles_ends(server, person, home):
    def lead_on(asked, connection):
        where = server.local.url("/.well-known/oauth-authorization-server")
        head = f"HTTP/1.1 302 Found\r\nLocation: {where}?again\r\nContent-Length: 0\r\n\r\n"
        connection.sendall(head.encode())

    server.local.routes["/.well-known/oauth-authorization-server"] = lead_on
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert "redirects" in auth.problem.message


async def test_a_server_cannot_lead_the_login_into_the_local_network(server, person, home):
    server.metadata["registration_endpoint"] = "https://192.168.1.1/register"
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert isinstance(auth.problem, NetError)


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
