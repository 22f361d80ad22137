"""The guarded client against real servers: places, redirects, sizes, times, and what it tells."""

from __future__ import annotations

import gzip
import logging
import socket
import threading
import zlib
from collections.abc import Callable
from importlib.metadata import version
from ipaddress import ip_address

import pytest

from loom_core.errors import NetError
from loom_core.net import GuardedClient, NetPolicy, Resolver

LOOPBACK = NetPolicy.allowing(["127.0.0.0/8"])


def always(*addresses: str) -> Resolver:
    async def resolve(host: str, port: int) -> list[str]:
        return list(addresses)

    return resolve


def limited(**limits: float) -> GuardedClient:
    return GuardedClient(NetPolicy(allowed_networks=LOOPBACK.allowed_networks, **limits))


async def refusal(client: GuardedClient, url: str) -> str:
    with pytest.raises(NetError) as refused:
        await client.request("GET", url)
    assert refused.value.advice
    return refused.value.message


async def test_an_answer_comes_whole_with_its_status_and_headers(client, server) -> None:
    url = server.answers(
        "/a", "港口".encode(), Content_Type='text/html; charset="GB18030"', X_Twice="1", x_twice="2"
    )
    answer = await client.request(
        "GET", url + "?q=1#part", headers={"Accept": "text/*", "If-None-Match": "x"}
    )
    assert (answer.url, answer.status, answer.body.decode()) == (url + "?q=1", 200, "港口")
    assert (answer.media_type, answer.charset) == ("text/html", "GB18030")
    assert answer.headers["x-twice"] == "1, 2"
    (asked,) = server.asked
    assert (asked.method, asked.target) == ("GET", "/a?q=1")
    assert asked.headers["host"] == f"127.0.0.1:{server.port}"
    assert asked.headers["user-agent"] == f"loom/{version('loom-mcp-core')}"
    assert asked.headers["accept"] == "text/*"
    assert asked.headers["if-none-match"] == "x"
    assert asked.headers["accept-encoding"] == "gzip, deflate"


async def test_any_status_is_an_answer(client, server) -> None:
    answer = await client.request("GET", server.answers("/gone", b"no", status=404))
    assert (answer.status, answer.body, answer.media_type, answer.charset) == (404, b"no", "", "")
    answer = await client.request("GET", server.answers("/same", status=304, ETag='"1"'))
    assert (answer.status, answer.headers["etag"]) == (304, '"1"')


async def test_a_body_is_sent_and_a_redirect_of_it_is_the_answer(client, server) -> None:
    answer = await client.request("POST", server.answers("/in", b"ok"), content=b'{"a": 1}')
    assert answer.body == b"ok"
    url = server.answers("/moved", status=307, Location="/in")
    assert (await client.request("POST", url, content=b"x")).status == 307
    assert [(asked.method, asked.body) for asked in server.asked] == [("POST", b'{"a": 1}'), ("POST", b"x")]


async def test_places_of_this_machine_are_refused_unless_allowed(server) -> None:
    url = server.answers("/", b"secret")
    for form in (url, url.replace("127.0.0.1", "localhost"), url.replace("127.0.0.1", "[::ffff:127.0.0.1]")):
        assert "is not allowed" in await refusal(GuardedClient(), form)
    for form in ("127.1", "2130706433", "0x7f000001", "0177.0.0.1"):
        assert "is not a web address" in await refusal(GuardedClient(), url.replace("127.0.0.1", form))
    assert server.asked == []


@pytest.mark.hostile("HTTP answers")
@pytest.mark.parametrize("address", ["127.0.0.1", "::ffff:127.0.0.1", "64:ff9b::7f00:1", "0.0.0.0", "::"])
async def test_a_public_name_of_a_private_address_is_refused(address: str, server) -> None:
    url = server.answers("/", b"secret").replace("127.0.0.1", "public.example")
    assert f"public.example ({ip_address(address)})" in await refusal(
        GuardedClient(resolve=always("8.8.8.8", address)), url
    )
    assert server.asked == []


async def test_a_name_that_changes_its_address_after_the_check_is_connected_where_it_was_checked(
    server,
) -> None:
    url = server.answers("/", b"inside").replace("127.0.0.1", "rebinding.example")
    told: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        told.append(host)
        return ["127.0.0.1"] if len(told) == 1 else ["127.0.0.66"]

    answer = await GuardedClient(LOOPBACK, resolve=rebinding).request("GET", url)
    assert answer.body == b"inside"
    assert told == ["rebinding.example"], "resolved once: what was checked is what was connected"
    assert server.asked[0].headers["host"] == f"rebinding.example:{server.port}"


@pytest.mark.hostile("HTTP answers")
async def test_a_name_that_turns_private_for_a_redirect_is_refused(server) -> None:
    policy = NetPolicy.allowing(["127.0.0.1"])  # plays the public address here, 127.0.0.66 the private one
    turns = iter(["127.0.0.1", "127.0.0.66"])

    async def rebinding(host: str, port: int) -> list[str]:
        return [next(turns)]

    url = server.answers("/", status=302, Location="/secret").replace("127.0.0.1", "rebinding.example")
    server.answers("/secret", b"secret")
    assert "(127.0.0.66) is not allowed" in await refusal(GuardedClient(policy, resolve=rebinding), url)
    assert [asked.target for asked in server.asked] == ["/"]


async def test_the_next_address_is_tried_where_one_does_not_answer(server) -> None:
    url = server.answers("/", b"here").replace("127.0.0.1", "two.example")
    client = GuardedClient(LOOPBACK, resolve=always("127.0.0.77", "127.0.0.1"))
    assert (await client.request("GET", url)).body == b"here"


async def test_redirects_are_followed_to_their_end(client, server) -> None:
    server.answers("/end", b"the end")
    url = server.answers("/start", status=301, Location="next?x=1")
    server.answers("/next", status=303, Location=server.url("/end") + "#there")
    answer = await client.request("GET", url)
    assert (answer.url, answer.body) == (server.url("/end"), b"the end")


async def test_a_redirect_may_lead_to_a_path_in_chinese(client, server) -> None:
    server.answers("/%E6%B8%AF%E5%8F%A3", b"harbour")
    answer = await client.request("GET", server.answers("/", status=302, Location="/港口"))
    assert answer.body == b"harbour"


async def test_a_redirect_without_a_place_is_the_answer(client, server) -> None:
    assert (await client.request("GET", server.answers("/", b"?", status=302))).status == 302


@pytest.mark.hostile("HTTP answers")
@pytest.mark.parametrize(
    ("location", "reason"),
    [("http://169.254.169.254/latest/meta-data/", "metadata service"),
     ("http://localhost/", "private network"), ("http://[::1]:1/", "this machine itself"),
     ("file:///etc/passwd", "not an http or https"),
     ("//10.0.0.1/x", "private address"), ("http://a:b@127.0.0.1/", "user name"),
     ("gopher://x/", "not an http"), ("http://[bad/", "not a web address"),
     ("http://127.0.0.1:99999/", "not a web address"),
     ("/" + "x" * 5000, "more than 4,096 characters")],
)  # fmt: skip
async def test_each_redirect_is_checked_like_the_first_address(
    location: str, reason: str, client, server
) -> None:
    assert reason in await refusal(client, server.answers("/", status=302, Location=location))
    assert len(server.asked) == 1


@pytest.mark.hostile("HTTP answers")
async def test_redirects_in_a_circle_end(client, server) -> None:
    url = server.answers("/", status=302, Location="/?again")
    assert "more than 5 redirects" in await refusal(client, url)
    assert len(server.asked) == 6


@pytest.mark.hostile("HTTP answers")
async def test_credentials_stay_with_their_origin(client, server, other) -> None:
    other.answers("/", b"mine now")
    server.answers("/same", status=302, Location=other.url("/"))
    url = server.answers("/", status=302, Location="/same")
    given = {"Authorization": "Bearer k", "X-Api-Key": "k", "Cookie": "k", "Accept-Language": "zh"}
    assert (await client.request("GET", url, headers=given)).body == b"mine now"
    assert [asked.headers.get("authorization") for asked in server.asked] == ["Bearer k", "Bearer k"]
    (asked,) = other.asked
    assert not {"authorization", "x-api-key", "cookie"} & asked.headers.keys()
    assert asked.headers["accept-language"] == "zh"
    assert "k" not in asked.headers.values()


@pytest.mark.hostile("HTTP answers")
async def test_cookies_are_not_kept(client, server) -> None:
    server.answers("/end", b"")
    await client.request("GET", server.answers("/", status=302, Location="/end", Set_Cookie="a=b"))
    assert all("cookie" not in asked.headers for asked in server.asked)


async def test_proxies_of_the_environment_are_not_used(client, server, monkeypatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    assert (await client.request("GET", server.answers("/", b"direct"))).body == b"direct"


async def test_a_proxy_of_the_settings_is_asked_instead_of_the_host(server) -> None:
    server.answers("http://far.example/page", b"by proxy")
    client = GuardedClient(NetPolicy(proxy=f"http://me:key@127.0.0.1:{server.port}"))
    assert (await client.request("GET", "http://far.example/page")).body == b"by proxy"
    assert server.asked[0].headers["proxy-authorization"].startswith("Basic ")
    assert "metadata service" in await refusal(client, "http://metadata.google.internal/")
    assert "private network" in await refusal(client, "http://wiki.internal/")
    assert "metadata service" in await refusal(client, "http://169.254.169.254/")


@pytest.mark.parametrize(
    ("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress), ("identity", bytes)]
)
async def test_packed_answers_are_unpacked(
    coding: str, pack: Callable[[bytes], bytes], client, server
) -> None:
    url = server.answers("/", pack(b"The harbour. " * 9000), Content_Encoding=coding)
    assert (await client.request("GET", url)).body == b"The harbour. " * 9000


@pytest.mark.hostile("HTTP answers")
@pytest.mark.parametrize(("coding", "pack"), [("gzip", gzip.compress), ("deflate", zlib.compress)])
async def test_a_bomb_is_refused_when_it_grows_too_large(coding: str, pack, server) -> None:
    url = server.answers("/", pack(bytes(30 << 20)), Content_Encoding=coding)
    assert "more than 1,048,576 bytes" in await refusal(limited(max_bytes=1 << 20), url)


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip"])
async def test_codings_that_were_not_asked_for_are_refused(coding: str, client, server) -> None:
    url = server.answers("/", b"x" * 100, Content_Encoding=coding)
    assert "was not asked for" in await refusal(client, url)


@pytest.mark.hostile("HTTP answers")
async def test_a_length_that_is_announced_too_large_is_refused_before_it_is_read(server) -> None:
    def announce(asked, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")
        connection.recv(1)  # until the client hangs up

    server.routes["/"] = announce
    assert "more than 1,000 bytes" in await refusal(limited(max_bytes=1000), server.url("/"))


@pytest.mark.hostile("HTTP answers")
@pytest.mark.parametrize("coding", ["identity", "gzip"])
async def test_an_endless_answer_is_cut_off(coding: str, server) -> None:
    def pour(asked, connection: socket.socket) -> None:
        head = f"HTTP/1.1 200 OK\r\nContent-Encoding: {coding}\r\nTransfer-Encoding: chunked\r\n\r\n"
        packed = gzip.compress(b"The harbour.")  # behind its end, NULs are padding
        connection.sendall(head.encode() + b"%x\r\n%b\r\n" % (len(packed), packed))
        while True:
            connection.sendall(b"8000\r\n" + bytes(0x8000) + b"\r\n")

    server.routes["/"] = pour
    assert "more than 1,000,000 bytes" in await refusal(limited(max_bytes=1_000_000), server.url("/"))


@pytest.mark.hostile("HTTP answers")
async def test_a_header_without_end_is_cut_off(client, server) -> None:
    def pour(asked, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\n")
        while True:
            connection.sendall(b"X-More: " + b"x" * 1000 + b"\r\n")

    server.routes["/"] = pour
    assert "could not be read" in await refusal(client, server.url("/"))


@pytest.mark.hostile("HTTP answers")
async def test_a_header_beyond_the_limit_is_refused(server) -> None:
    url = server.answers("/", b"", X_Long="x" * 5000)
    assert "its header has more than 4,096 bytes" in await refusal(limited(max_header_bytes=4096), url)


async def test_a_server_that_drips_is_given_up_at_the_deadline(server) -> None:
    over = threading.Event()

    def drip(asked, connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        while not over.wait(0.02):
            connection.sendall(b"x")

    server.routes["/"] = drip
    message = await refusal(limited(total_seconds=0.3), server.url("/"))
    over.set()
    assert "was not answered within 0.3 seconds" in message


async def test_a_server_that_does_not_take_the_connection_is_given_up() -> None:
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(8)]  # as many as fill the queue
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        message = await refusal(limited(connect_seconds=0.3), f"http://127.0.0.1:{port}/")
        for one in waiting:
            one.close()
    assert message == "127.0.0.1 did not accept a connection within 0.3 seconds."


@pytest.mark.hostile("HTTP answers")
async def test_a_name_that_takes_too_long_to_find_is_given_up() -> None:
    import anyio

    async def slow(host: str, port: int) -> list[str]:
        await anyio.sleep_forever()
        raise AssertionError

    client = GuardedClient(NetPolicy(connect_seconds=0.1), resolve=slow)
    assert "did not accept a connection within 0.1 seconds" in await refusal(client, "http://slow.example/")


async def test_no_one_listening_is_said(client) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert "could not be read" in await refusal(client, f"http://127.0.0.1:{port}/")


@pytest.mark.hostile("HTTP answers")
@pytest.mark.parametrize(
    "sent",
    [b"", b"nonsense\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nshort", b"SSH-2.0-x\r\n",
     b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", b"HTTP/2 200 OK\r\n\r\n",
     b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", b"HTTP/1.1 99999 OK\r\n\r\n"],
)  # fmt: skip
async def test_a_broken_answer_is_an_error_with_advice(sent: bytes, client, server) -> None:
    server.routes["/"] = lambda asked, connection: connection.sendall(sent)
    assert "could not be read" in await refusal(client, server.url("/"))


async def test_tls_is_checked_against_the_name_and_not_the_address(certificates, tls_server) -> None:
    server = tls_server
    server.answers("/", b"safe")
    client = GuardedClient(LOOPBACK, resolve=always("127.0.0.1"), tls=certificates.client)
    assert (await client.request("GET", server.url("/", host="site.example"))).body == b"safe"
    assert server.asked[0].headers["host"] == f"site.example:{server.port}"
    assert "CERTIFICATE" in await refusal(client, server.url("/", host="evil.example"))
    assert "CERTIFICATE" in await refusal(GuardedClient(LOOPBACK), server.url("/"))


async def test_neither_messages_nor_logs_hold_queries(client, server, caplog) -> None:
    with caplog.at_level(logging.DEBUG):
        await client.request("GET", server.answers("/", b"", Set_Cookie="secret") + "?key=secret")
        server.answers("/circle", status=302, Location="/circle?key=secret")
        message = await refusal(client, server.url("/circle?key=secret"))
    assert "/circle?…" in message
    assert "/?…: 200" in caplog.text
    assert "secret" not in message + caplog.text


async def test_connections_that_are_kept_are_used_again(local_servers) -> None:
    server = local_servers(keeps=True)
    url = server.answers("/", b"here")
    async with GuardedClient(LOOPBACK, keep_seconds=5) as client:
        assert [(await client.request("GET", url)).body for _ in range(5)] == [b"here"] * 5
        assert (await client.request("POST", url, content=b"{}", repeatable=True)).body == b"here"
        assert (server.connections, len(server.asked)) == (1, 6)
        await client.aclose()
        assert (await client.request("GET", url)).body == b"here"
    assert server.connections == 2


async def test_what_may_not_arrive_twice_has_a_connection_of_its_own(local_servers) -> None:
    server = local_servers(keeps=True)
    url = server.answers("/", b"here")
    async with GuardedClient(LOOPBACK, keep_seconds=5) as client:
        await client.request("GET", url)
        for _ in range(2):
            assert (await client.request("POST", url, content=b"{}")).body == b"here"
        assert (await client.request("PUT", url, content=b"{}", repeatable=False)).body == b"here"
        assert server.connections == 4
        await client.request("GET", url)
    assert server.connections == 4


@pytest.mark.parametrize("method", ["GET", "POST"])
async def test_what_a_closed_connection_swallows_is_sent_once_more(local_servers, method) -> None:
    server, used = local_servers(keeps=True), list[socket.socket]()

    def once(_asked: object, connection: socket.socket) -> None:
        if connection in used:
            connection.shutdown(socket.SHUT_RDWR)
        else:
            used.append(connection)
            connection.sendall(b"HTTP/1.1 200 Fine\r\nContent-Length: 4\r\n\r\nhere")

    server.routes["/"] = once
    async with GuardedClient(LOOPBACK, keep_seconds=5) as client:
        for _ in range(2):
            assert (await client.request(method, server.url("/"), repeatable=True)).body == b"here"
    assert [asked.method for asked in server.asked] == [method] * 3
    assert server.connections == 2


async def test_a_connection_that_is_kept_goes_where_it_was_checked(local_servers) -> None:
    server = local_servers(keeps=True)
    url = server.answers("/", b"inside").replace("127.0.0.1", "rebinding.example")
    told: list[str] = []

    async def rebinding(host: str, port: int) -> list[str]:
        told.append(host)
        return ["127.0.0.1"] if len(told) == 1 else ["10.0.0.1"]

    async with GuardedClient(LOOPBACK, resolve=rebinding, keep_seconds=5) as client:
        for _ in range(3):
            assert (await client.request("GET", url)).body == b"inside"
        assert len(told) == 1
        await client.aclose()
        assert "(10.0.0.1) is not allowed" in await refusal(client, url)


async def test_a_server_that_closes_what_is_kept_is_reconnected(client, server) -> None:
    url = server.answers("/", b"here")
    async with GuardedClient(LOOPBACK, keep_seconds=5) as client:
        for _ in range(3):
            assert (await client.request("GET", url)).body == b"here"
    assert server.connections == 3


async def test_closing_lets_a_request_that_goes_on_end(local_servers) -> None:
    import anyio
    from anyio import to_thread

    server, asked, go_on = local_servers(keeps=True), threading.Event(), threading.Event()

    def late(_, connection: socket.socket) -> None:
        asked.set()
        go_on.wait(10)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nlate")

    server.routes["/"] = late
    client, bodies = GuardedClient(LOOPBACK, keep_seconds=5), list[bytes]()

    async def ask() -> None:
        bodies.append((await client.request("GET", server.url("/"))).body)

    with anyio.fail_after(10):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(ask)
            await to_thread.run_sync(asked.wait, 10)
            await client.aclose()
            go_on.set()
    assert bodies == [b"late"]


async def test_an_error_says_whether_what_was_asked_may_have_been_done(client, server) -> None:
    async def failure(client: GuardedClient, url: str, **more) -> str:
        with pytest.raises(NetError) as failed:
            await client.request("POST", url, **more)
        return failed.value.failure

    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    assert await failure(client, f"http://127.0.0.1:{port}/") == "connection"
    assert await failure(GuardedClient(), "http://127.0.0.1/") == "refused"
    assert await failure(client, "http://127.0.0.1:x/") == "refused"
    server.routes["/"] = lambda asked, connection: None
    assert await failure(client, server.url("/")) == "interrupted"
    server.routes["/"] = lambda asked, connection: connection.recv(1)
    assert await failure(client, server.url("/"), seconds=0.2) == "timeout"
    assert await failure(limited(max_bytes=1), server.answers("/", b"too long")) == "unusable"
    assert len(server.asked) == 3


@pytest.mark.hostile("HTTP answers")
@pytest.mark.parametrize(
    ("name", "value"),
    [("X-Note", "secret\r\nX-More: 1"), ("X-Note", "secret\n"), ("X-Note", "机密 secret"),
     ("X-Note", "se\0cret"), ("Host", "secret.example"), ("content-length", "7"), ("Transfer-Encoding", "x"),
     ("X Note", "secret"), ("Proxy-Authorization", "secret"), ("", "secret"), ("X-Note:", "secret")],
)  # fmt: skip
async def test_a_header_that_cannot_be_sent_is_refused_without_its_value(
    name: str, value: str, client, server
) -> None:
    with pytest.raises(NetError, match="cannot be sent") as refused:
        await client.request("GET", server.url("/"), headers={name: value})
    assert refused.value.failure == "refused"
    assert "secret" not in str(refused.value)
    assert server.asked == []
