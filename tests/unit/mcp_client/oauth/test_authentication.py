"""Requests to a server that wants OAuth: a person logs in; tokens are kept, renewed, and go nowhere else."""

from __future__ import annotations

import time

import anyio
import httpx2
import pytest

from loom_core.mcp_client.configuration.server_config import ServerConfig
from tests.fixtures.logins import ask, entry, keep, oauth_auth, store


def test_a_server_without_oauth_needs_nothing(home):
    config = ServerConfig(name="open", transport="http", url="https://open.example/mcp")
    assert oauth_auth(config, home) is None


async def test_a_person_logs_in_and_the_next_process_needs_no_one(server, person, home):
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
    assert auth.problem.message == "There is no login at '知识'."
    assert "`loom-query-server mcp login 知识`" in auth.problem.advice


@pytest.mark.hostile("tokens")
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


@pytest.mark.hostile("tokens")
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


@pytest.mark.hostile("tokens")
@pytest.mark.parametrize("proof_in", ["header", "body"])
async def test_a_client_with_a_secret_renews_with_the_secret_of_the_entry(server, home, proof_in):
    del server.tokens[await keep(server, home)]
    server.clients["桌面"] = "geheim & co"
    config = entry(
        server, client_id="桌面", client_secret="geheim & co", proof_in=proof_in, issuer=server.issuer
    )
    assert await ask(oauth_auth(config, home), server) == 200
    assert "geheim & co" not in store(server, home).path.read_text(encoding="utf-8")


@pytest.mark.hostile("tokens")
async def test_an_answer_to_a_renewal_that_is_none_ends_the_login(server, home):
    del server.tokens[await keep(server, home)]
    server.local.answers("/token", b"<html>", content_type="text/html")
    auth = oauth_auth(entry(server), home)
    assert await ask(auth, server) == 401
    assert auth.problem.message == "The login at '知识' has ended."


@pytest.mark.hostile("tokens")
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


@pytest.mark.hostile("tokens")
async def test_a_login_that_cannot_be_read_is_made_again(server, person, home):
    await keep(server, home)
    store(server, home).path.write_text("{", encoding="utf-8")
    running = oauth_auth(entry(server), home)
    assert await ask(running, server) == 401
    assert "cannot be read" in running.problem.message

    assert await ask(oauth_auth(entry(server), home, browser=person), server) == 200
    assert await ask(running, server) == 200


@pytest.mark.hostile("tokens")
async def test_tokens_go_to_the_origin_of_the_server_only(server, home, local_servers):
    await keep(server, home)
    other = local_servers()
    other.answers("/elsewhere")
    async with httpx2.AsyncClient(verify=False, auth=oauth_auth(entry(server), home)) as client:
        await client.get(other.url("/elsewhere"))
        await client.get(server.local.url("/mcp", host="localhost"))

    assert "authorization" not in other.asked[0].headers
    assert "authorization" not in server.asked("/mcp")[0].headers


@pytest.mark.hostile("tokens")
async def test_an_entry_with_another_address_has_no_login(server, home):
    await keep(server, home)
    moved = entry(server).model_copy(update={"url": server.local.url("/mcp", host="localhost")})
    async with httpx2.AsyncClient(verify=False, auth=oauth_auth(moved, home)) as client:
        assert (await client.post(moved.url)).status_code == 401
    assert "authorization" not in server.asked("/mcp")[0].headers


async def test_a_person_who_says_no_is_told_so(server, person, home):
    server.denies = True
    auth = oauth_auth(entry(server), home, browser=person)
    assert await ask(auth, server) == 401
    assert await ask(auth, server) == 401
    assert auth.problem.message == "The login at '知识' was refused: 张三 said no."
    assert len(person.visited) == 1
