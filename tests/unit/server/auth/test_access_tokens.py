"""Access tokens of an issuer: which hold, which do not, and where the keys come from."""

from __future__ import annotations

import hmac
import json
import threading
import time
from base64 import urlsafe_b64encode
from collections import defaultdict

import anyio
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from loom_core.errors import ConfigError, NetError
from loom_core.net import GuardedClient, NetPolicy
from loom_core.server.auth.access_tokens import Issuer, IssuerUnavailableError, JwtVerifier, SigningKeys
from loom_core.server.auth.authentication import Authentication, AuthSettings, metadata_url
from loom_core.server.auth.refusal import RefusedError

RESOURCE = "https://kb.example/mcp"
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())


def jwk(private, id_, **further):
    algorithm = RSAAlgorithm if isinstance(private, rsa.RSAPrivateKey) else ECAlgorithm
    return {**json.loads(algorithm.to_jwk(private.public_key())), "kid": id_, "use": "sig", **further}


@pytest.fixture
def server(local_servers):
    """A web server that answers with 404 where nothing is said."""
    server = local_servers()
    server.answers("/missing", status=404)
    server.routes = defaultdict(lambda: server.routes["/missing"], server.routes)
    return server


@pytest.fixture
def publish(server):
    """Lets the issuer publish keys; gives its URL."""

    def answer(*keys):
        server.answers("/keys", json.dumps({"keys": keys}).encode())
        metadata = {"issuer": server.url(""), "jwks_uri": server.url("/keys")}
        server.answers("/.well-known/oauth-authorization-server", json.dumps(metadata).encode())
        return server.url("")

    return answer


@pytest.fixture
def issuer(publish):
    return publish(jwk(RSA, "a"), jwk(EC, "b"))


def signed(issuer, *, key=RSA, algorithm="RS256", kid="a", without=(), header=None, **claims):
    now = int(time.time())
    given = {
        "iss": issuer,
        "aud": RESOURCE,
        "sub": "张三",
        "client_id": "desktop",
        "scope": "read profile",
        "exp": now + 600,
        **claims,
    }
    body = {name: value for name, value in given.items() if name not in without}
    said = ({"kid": kid} if kid else {}) | (header or {})
    return jwt.encode(body, key, algorithm=algorithm, headers=said)


def verifier(issuer):
    return JwtVerifier(Issuer(issuer, RESOURCE))


@pytest.mark.parametrize(
    ("key", "algorithm", "kid"), [(RSA, "RS256", "a"), (RSA, "PS256", "a"), (EC, "ES256", "b")]
)
async def test_a_token_of_the_issuer_holds(issuer, key, algorithm, kid):
    verified = await verifier(issuer).verify(signed(issuer, key=key, algorithm=algorithm, kid=kid))
    assert verified.caller.name == "张三"
    assert verified.caller.scopes == {"read"}
    assert verified.caller.sources is None
    assert not verified.expired


async def test_scopes_and_sources_come_from_the_claims(issuer):
    check = verifier(issuer)
    listed = signed(issuer, without=["scope"], scp=["read", "write", 7])
    assert (await check.verify(listed)).caller.scopes == frozenset()
    listed = signed(issuer, without=["scope"], scp=["read", "write"], loom_sources=["文档"])
    caller = (await check.verify(listed)).caller
    assert (caller.scopes, caller.sources) == ({"read", "write"}, {"文档"})
    assert (await check.verify(signed(issuer, loom_sources="docs"))) is None


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "https://other.example/mcp"},
        {"aud": ["https://other.example/mcp"]},
        {"iss": "https://evil.example"},
        {"exp": 1},
        {"nbf": 4_000_000_000},
        {"without": ["exp"]},
        {"without": ["aud"]},
        {"without": ["iss"]},
        {"without": ["sub", "client_id"]},
        pytest.param({"key": OTHER_RSA}, id="another key"),
        {"kid": "c"},
        {"kid": "b"},
    ],
    ids=str,
)
async def test_a_token_that_is_not_for_this_server_now_does_not_hold(issuer, claims):
    assert await verifier(issuer).verify(signed(issuer, **claims)) is None


@pytest.mark.parametrize("typ", ["at+jwt", "AT+JWT", "application/at+jwt", "JWT", "jwt", None])
async def test_an_access_token_is_taken_by_whatever_name_issuers_give_it(issuer, typ):
    assert await verifier(issuer).verify(signed(issuer, header={"typ": typ}))


@pytest.mark.hostile("tokens")
@pytest.mark.parametrize(
    "claims",
    [
        {"header": {"typ": "logout+jwt"}},
        {"header": {"typ": "dpop+jwt"}},
        {"nonce": "n"},
        {"at_hash": "h"},
        {"c_hash": "h", "header": {"typ": None}},
        {"typ": "ID"},
        {"typ": "Refresh"},
        {"token_use": "id"},
    ],
    ids=str,
)
async def test_a_token_of_another_kind_gives_no_access(issuer, claims, caplog):
    assert await verifier(issuer).verify(signed(issuer, **claims)) is None
    assert "it is not an access token" in caplog.text


@pytest.mark.parametrize(
    "claims",
    [{"typ": "Bearer", "nonce": "n"}, {"token_use": "access"}, {"header": {"typ": "at+jwt"}, "nonce": "n"}],
    ids=str,
)
async def test_a_token_that_says_that_it_gives_access_may_carry_what_id_tokens_have(issuer, claims):
    assert await verifier(issuer).verify(signed(issuer, **claims))


@pytest.mark.parametrize(("typ", "holds"), [("at+jwt", True), ("JWT", False), (None, False)])
async def test_who_wants_the_letter_of_the_standard_takes_typed_tokens_only(issuer, typ, holds):
    check = JwtVerifier(Issuer(issuer, RESOURCE, typed=True))
    assert (await check.verify(signed(issuer, header={"typ": typ})) is not None) is holds


async def test_a_list_of_audiences_may_hold_this_server(issuer):
    assert await verifier(issuer).verify(signed(issuer, aud=["https://other.example", RESOURCE]))


async def test_without_an_id_the_only_key_of_its_kind_is_taken(issuer):
    assert await verifier(issuer).verify(signed(issuer, kid=""))


@pytest.mark.hostile("tokens")
async def test_no_token_is_taken_that_needs_no_private_key(issuer, publish):
    check = verifier(issuer)
    body = signed(issuer).split(".")[1]
    head = urlsafe_b64encode(b'{"alg":"HS256","typ":"JWT","kid":"a"}').rstrip(b"=").decode()
    public = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    mac = hmac.digest(public, f"{head}.{body}".encode(), "sha256")
    forged = f"{head}.{body}.{urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    assert await check.verify(forged) is None
    assert await check.verify(signed(issuer, key="", algorithm="none", kid="a")) is None
    secret = {"kty": "oct", "k": "c2VjcmV0LXNlY3JldC1zZWNyZXQtc2VjcmV0LXNlY3JldA", "kid": "s", "alg": "HS256"}
    publish(secret)
    token = signed(issuer, key="secret-secret-secret-secret-secret", algorithm="HS256", kid="s")
    assert await verifier(issuer).verify(token) is None


async def test_a_key_serves_the_algorithm_it_is_for_and_signatures_only(publish):
    issuer = publish(
        jwk(RSA, "a", alg="RS512"), jwk(OTHER_RSA, "e", use="enc"), {"kty": "RSA", "kid": "x"}, "no"
    )
    check = verifier(issuer)
    assert await check.verify(signed(issuer)) is None
    assert await check.verify(signed(issuer, algorithm="RS512"))
    assert await check.verify(signed(issuer, key=OTHER_RSA, kid="e")) is None
    assert await check.verify(signed(issuer, kid="x")) is None


DEEP = urlsafe_b64encode(b"[" * 6000).decode()  # PyJWT 2.10 raises RecursionError


@pytest.mark.parametrize(
    "text",
    ["", "x", "a.b.c", "eyJhbGciOiJSUzI1NiJ9.e30.", "é.é.é", pytest.param(f"{DEEP}.e30.eA", id="deep")],
)
async def test_what_is_no_jwt_does_not_hold(issuer, text):
    assert await verifier(issuer).verify(text) is None


async def test_the_token_is_not_in_the_log(issuer, caplog):
    token = signed(issuer, aud="https://other.example")
    assert await verifier(issuer).verify(token) is None
    assert "a token is refused" in caplog.text
    assert token not in caplog.text


async def test_keys_are_kept_and_a_new_one_is_found_but_not_more_often_than_each_half_minute(publish, server):
    issuer = publish(jwk(RSA, "a"))
    now = [0.0]
    keys = SigningKeys(issuer, clock=lambda: now[0])
    for _ in range(3):
        assert await keys.find("a", "RS256")
    assert asked(server) == 1
    publish(jwk(RSA, "a"), jwk(OTHER_RSA, "n"))
    assert await keys.find("n", "RS256") is None
    now[0] = 31.0
    assert await keys.find("n", "RS256")
    for _ in range(3):
        assert await keys.find("unknown", "RS256") is None
    assert asked(server) == 2


@pytest.mark.hostile("tokens")
async def test_a_key_that_is_withdrawn_is_not_taken_after_ten_minutes(publish):
    issuer = publish(jwk(RSA, "a"))
    now = [0.0]
    keys = SigningKeys(issuer, clock=lambda: now[0])
    assert await keys.find("a", "RS256")
    publish(jwk(OTHER_RSA, "n"))
    now[0] = 601.0
    assert await keys.find("a", "RS256") is None


async def test_known_keys_are_used_for_a_day_while_the_issuer_is_gone(publish, server):
    issuer = publish(jwk(RSA, "a"))
    now = [0.0]
    keys = SigningKeys(issuer, clock=lambda: now[0])
    assert await keys.find("a", "RS256")
    server.answers("/keys", b"", status=500)
    now[0] = 80_000.0
    assert await keys.find("a", "RS256")
    now[0] = 90_000.0
    with pytest.raises(NetError, match="status 500"):
        await keys.find("a", "RS256")


def asked(server):
    return sum(request.target == "/keys" for request in server.asked)


async def test_an_issuer_that_cannot_be_asked_is_not_the_clients_fault(server):
    with pytest.raises(IssuerUnavailableError):
        await verifier(server.url("/nowhere")).verify(signed(server.url("/nowhere")))
    settings = AuthSettings(issuer=Issuer(server.url(""), RESOURCE))
    with pytest.raises(RefusedError) as refused:
        await Authentication(settings, realm="kb").authenticate([f"Bearer {signed(server.url(''))}"])
    assert (refused.value.refusal.status, refused.value.refusal.retry_after) == (503, 30)


async def test_an_issuer_that_answers_slowly_is_left_alone_after_it_has_failed(server):
    keys = SigningKeys(server.url(""), clock=lambda: 20.0 * len(server.asked))  # each request takes 20 s
    for _ in range(3):
        with pytest.raises(NetError):
            await keys.find("a", "RS256")
    assert len(server.asked) == 2  # the addresses of metadata, once


async def test_known_keys_are_used_while_the_issuer_does_not_answer(publish, server):
    issuer = publish(jwk(RSA, "a"))
    now = [0.0]
    keys = SigningKeys(issuer, server.url("/keys"), clock=lambda: now[0])
    assert await keys.find("a", "RS256")
    now[0] = 601.0
    answer, reached, may_answer = server.routes["/keys"], threading.Event(), threading.Event()

    def answer_later(*request):
        reached.set()
        may_answer.wait(10)
        answer(*request)

    server.routes["/keys"] = answer_later
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(keys.find, "a", "RS256")
        assert await anyio.to_thread.run_sync(reached.wait, 5)
        with anyio.fail_after(5):
            assert await keys.find("a", "RS256")
        may_answer.set()


@pytest.mark.hostile("tokens")
async def test_metadata_of_another_issuer_are_not_believed(server):
    metadata = {"issuer": "https://evil.example", "jwks_uri": server.url("/keys")}
    server.answers("/.well-known/oauth-authorization-server", json.dumps(metadata).encode())
    server.answers("/.well-known/openid-configuration", json.dumps([]).encode())
    with pytest.raises(IssuerUnavailableError):
        await verifier(server.url("")).verify(signed(server.url("")))


async def test_the_metadata_of_openid_are_found_behind_a_path(server):
    server.answers("/keys", json.dumps({"keys": [jwk(RSA, "a")]}).encode())
    issuer = server.url("/realms/team")
    metadata = {"issuer": issuer, "jwks_uri": server.url("/keys")}
    server.answers("/realms/team/.well-known/openid-configuration", json.dumps(metadata).encode())
    assert await verifier(issuer).verify(signed(issuer))


async def test_keys_are_not_fetched_from_inside_unless_the_operator_named_the_place(server):
    server.answers("/keys", json.dumps({"keys": [jwk(RSA, "a")]}).encode())
    strict = GuardedClient(NetPolicy())
    keys = SigningKeys("https://issuer.example", server.url("/keys"), client=strict)
    with pytest.raises(NetError, match="this machine itself"):
        await keys.find("a", "RS256")


@pytest.mark.hostile("tokens")
@pytest.mark.parametrize(
    ("url", "resource", "reason"),
    [
        ("http://issuer.example", RESOURCE, "not an https address"),
        ("ftp://issuer.example", RESOURCE, "not an https address"),
        ("https://issuer.example", "kb.example/mcp", "not the URL of an endpoint"),
        ("https://issuer.example", "https://kb.example/mcp?x=1", "not the URL of an endpoint"),
    ],
)
def test_addresses_that_cannot_be_right_are_refused(url, resource, reason):
    with pytest.raises(ConfigError, match=reason):
        Issuer(url, resource)


def test_metadata_of_this_server_are_where_the_standard_says():
    assert metadata_url(RESOURCE) == "https://kb.example/.well-known/oauth-protected-resource/mcp"
    assert metadata_url("https://kb.example/") == "https://kb.example/.well-known/oauth-protected-resource"


async def test_clients_are_shown_the_way_to_the_issuer(issuer):
    settings = AuthSettings(issuer=Issuer(issuer, RESOURCE))
    with pytest.raises(RefusedError) as refused:
        await Authentication(settings, realm="kb").authenticate([])
    assert refused.value.refusal.challenge == (
        'Bearer realm="kb", scope="read write", '
        'resource_metadata="https://kb.example/.well-known/oauth-protected-resource/mcp"'
    )
