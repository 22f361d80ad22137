"""The web tools, against real servers on this machine."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from loom_core.errors import ConfigError
from loom_core.tools.builtin.http_request import HttpAccess, http_get_tool, http_request_tool
from loom_core.tools.interface import CallContext, Tool, ToolFailure

if TYPE_CHECKING:
    from tests.fixtures.local_server import LocalServer


@pytest.fixture
def server(local_servers: Callable[..., LocalServer]) -> LocalServer:
    return local_servers()


_LOCAL = HttpAccess(allow=("127.0.0.1",))


async def _text(tool: Tool, **arguments: Any) -> str:
    output = await tool.call(arguments)
    assert not output.is_error, output.text
    return output.text


async def _problem(tool: Tool, **arguments: Any) -> str:
    output = await tool.call(arguments)
    assert output.is_error
    return output.text


async def test_a_page_comes_as_text_with_its_links(server: LocalServer) -> None:
    page = '<html><body><h1>港口</h1><a href="/下">next</a></body></html>'
    url = server.answers("/a", page.encode("gb18030"), Content_Type="text/html; charset=gb2312")

    assert await _text(http_get_tool(_LOCAL), url=url) == (
        f"HTTP 200 · text/html · {url}\n\n# 港口\n\n[next]({url[:-2]}/下)"
    )
    assert "<h1>港口</h1>" in await _text(http_get_tool(_LOCAL), url=url, raw=True)


async def test_json_comes_as_it_is_and_a_failure_says_so(server: LocalServer) -> None:
    url = server.answers("/j", b'{"a": 1}', Content_Type="application/json", ETag='"7"')
    gone = server.answers("/gone", b"no", status=404)

    assert (await _text(http_get_tool(_LOCAL), url=url)).endswith('\netag: "7"\n\n{"a": 1}')
    assert "HTTP 404" in await _problem(http_get_tool(_LOCAL), url=gone)


async def test_a_failure_says_whether_anything_was_done_and_who_can_help(server: LocalServer) -> None:
    post = http_request_tool(_LOCAL)
    busy = server.answers("/busy", status=503, Retry_After="3")
    broken = server.answers("/broken", status=503)
    closed = server.answers("/closed", b"no", status=401)

    refused = await post.call({"method": "POST", "url": busy})
    unknown = await post.call({"method": "POST", "url": broken})
    unauthorized = await post.call({"method": "POST", "url": closed})
    unreachable = await post.call({"method": "POST", "url": "http://127.0.0.1:9/"})

    assert refused.failure == ToolFailure("unavailable", nothing_done=True, retry_after=3.0)
    assert unknown.failure == ToolFailure("unavailable")
    assert unauthorized.failure is not None
    assert "The operator configures them (`http.headers` of the tools)" in unauthorized.text
    assert unreachable.failure == ToolFailure("connection", nothing_done=True)


async def test_a_long_text_comes_in_pieces(server: LocalServer) -> None:
    url = server.answers(
        "/long", ("甲" * 40_000 + "乙" * 5).encode(), Content_Type="text/plain; charset=utf-8"
    )
    get = http_get_tool(_LOCAL)

    assert (await _text(get, url=url)).endswith("[characters 0–40,000 of 40,005; go on with start=40000]")
    assert (await _text(get, url=url, start=40_000)).endswith(
        "乙乙乙乙乙\n[characters 40,000–40,005 of 40,005]"
    )
    assert "Begin earlier" in await _problem(get, url=url, start=50_000)


async def test_what_is_no_text_is_refused(server: LocalServer) -> None:
    url = server.answers("/x.png", b"\x89PNG\r\n\x1a\n" + bytes(100), Content_Type="image/png")

    assert "it is image/png, 108 bytes" in await _problem(http_get_tool(_LOCAL), url=url)


async def test_a_request_that_was_answered_by_no_text_was_done_nevertheless(server: LocalServer) -> None:
    url = server.answers("/labels", b"\x89PNG\r\n\x1a\n", status=201, Content_Type="image/png")

    told = await _text(http_request_tool(_LOCAL), method="POST", url=url, body="half a character: \ud83d")
    assert told == f"HTTP 201 · image/png · {url}\n\n[The answer is not text: it is image/png, 8 bytes.]"
    assert [asked.body for asked in server.asked] == [b"half a character: ?"]


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/", "http://127.0.0.1:8000/", "http://localhost/",
        "http://[::ffff:169.254.169.254]/", "http://10.0.0.1/", "http://2852039166/", "file:///etc/passwd",
        "http://metadata.google.internal/", "http://me:pw@example.com/", "ftp://example.com/",
    ],
)  # fmt: skip
@pytest.mark.parametrize("made", [http_get_tool, http_request_tool])
async def test_places_inside_may_not_be_asked(made: Callable[[], Tool], url: str) -> None:
    arguments = {"url": url} if made is http_get_tool else {"url": url, "method": "POST"}

    output = await made().call(arguments)

    assert output.is_error
    assert "HTTP " not in output.text


@pytest.mark.hostile("addresses")
async def test_a_redirect_to_a_place_inside_is_not_followed(server: LocalServer) -> None:
    url = server.answers("/r", b"", status=302, Location="http://169.254.169.254/latest/")

    assert "169.254.169.254 is not allowed" in await _problem(http_get_tool(_LOCAL), url=url)


async def test_only_some_hosts_may_be_asked(server: LocalServer) -> None:
    url = server.answers("/a", b"x", Content_Type="text/plain")
    access = HttpAccess(only=("*.example.org", "api.example.com"), allow=("127.0.0.1",))

    refused = await _problem(http_get_tool(access), url=url)

    assert refused == (
        "127.0.0.1 is not allowed: only certain hosts are. Ask one of: *.example.org, api.example.com."
    )
    assert await _text(http_get_tool(HttpAccess(only=("127.0.0.1",), allow=("127.0.0.1",))), url=url)


async def test_hosts_of_the_settings_may_be_written_as_people_write_them(server: LocalServer) -> None:
    tool = http_get_tool(HttpAccess(only=("例子.cn", "*.EXAMPLE.org", "LocalHost"), allow=("LOCALHOST",)))
    for url in ("https://other.cn/", "https://xn--fsqu00a.cn.example/", "https://example.org/"):
        assert "only certain hosts are" in await _problem(tool, url=url)

    url = server.answers("/p", b"ok", Content_Type="text/plain").replace("127.0.0.1", "localhost")
    keyed = HttpAccess(allow=("LOCALHOST",), headers={"LocalHost": {"X-Key": "abcdef"}})
    await _text(http_get_tool(keyed), url=url)
    assert server.asked[-1].headers["x-key"] == "abcdef"
    assert HttpAccess(only=("*.例子.cn",)).policy().names_host("a.xn--fsqu00a.cn")

    for wrong in ("https://a.example", "", "例 子"):
        with pytest.raises(ConfigError, match="is not a host name"):
            http_get_tool(HttpAccess(only=(wrong,)))
        with pytest.raises(ConfigError, match="is not a host name"):
            http_get_tool(HttpAccess(headers={wrong: {}}))


async def test_something_is_sent_as_json_or_as_text(server: LocalServer) -> None:
    url = server.answers("/p", b"ok", Content_Type="text/plain", status=201)
    request = http_request_tool(_LOCAL)

    await _text(request, method="POST", url=url, body={"城市": "北京"}, headers={"If-Match": "1"})
    await _text(request, method="PUT", url=url, body="plain", headers={"Content-Type": "text/csv"})
    await _text(request, method="DELETE", url=url)

    first, second, third = server.asked
    assert (first.method, json.loads(first.body), first.headers["content-type"]) == (
        "POST", {"城市": "北京"}, "application/json",
    )  # fmt: skip
    assert first.headers["if-match"] == "1"
    assert (second.method, second.body, second.headers["content-type"]) == ("PUT", b"plain", "text/csv")
    assert (third.method, third.body) == ("DELETE", b"")


@pytest.mark.parametrize(
    "header", ["Authorization", "Cookie", "X-Api-Key", "Host", "Proxy-Authorization", "Transfer-Encoding"]
)
async def test_a_model_cannot_give_credentials_or_what_the_client_says(
    server: LocalServer, header: str
) -> None:
    url = server.answers("/p", b"ok", Content_Type="text/plain")

    refused = await _problem(http_request_tool(_LOCAL), method="POST", url=url, headers={header: "x"})

    assert "cannot be given" in refused
    assert not server.asked


@pytest.mark.hostile("addresses")
async def test_a_header_of_several_lines_is_refused(server: LocalServer) -> None:
    refused = await _problem(
        http_request_tool(_LOCAL),
        method="GET",
        url=f"http://127.0.0.1:{server.port}/",
        headers={"A": "b\r\nC: d"},
    )
    assert "not a header that can be sent" in refused


async def test_configured_credentials_are_sent_to_their_host_and_never_shown(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORT_TOKEN", "s3cr3t-t0ken")
    url = server.answers("/p", b"you said: Bearer s3cr3t-t0ken", Content_Type="text/plain")
    access = HttpAccess(
        allow=("127.0.0.1",), headers={"127.0.0.1": {"Authorization": "Bearer env:PORT_TOKEN"}}
    )

    text = await _text(http_get_tool(access), url=url)

    assert server.asked[0].headers["authorization"] == "Bearer s3cr3t-t0ken"
    assert "s3cr3t" not in text


async def test_a_secret_is_not_told_piece_by_piece_nor_without_its_scheme(
    server: LocalServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORT_TOKEN", "s3cr3t-t0ken")
    access = HttpAccess(
        allow=("127.0.0.1",), headers={"127.0.0.1": {"Authorization": "Bearer env:PORT_TOKEN"}}
    )
    url = server.answers("/p", b"Bearer s3cr3t-t0ken", Content_Type="text/plain", ETag='"s3cr3t-t0ken"')
    bare = server.answers("/bare", b'{"token": "s3cr3t-t0ken"}', Content_Type="application/json")

    for start in range(8):
        assert "3cr3t" not in (await http_get_tool(access).call({"url": url, "start": start})).text
    assert (await _text(http_get_tool(access), url=bare)).endswith('{"token": "[secret]"}')


async def test_credentials_do_not_go_elsewhere_nor_unencrypted(server: LocalServer) -> None:
    url = server.answers("/p", b"ok", Content_Type="text/plain")
    for access in (
        HttpAccess(allow=("127.0.0.0/8",), headers={"127.0.0.1": {"X-Key": "abcdef"}}),
        HttpAccess(allow=("127.0.0.1",), headers={"other.example": {"X-Key": "abcdef"}}),
    ):
        await _text(http_get_tool(access), url=url)
    assert all("x-key" not in asked.headers for asked in server.asked)


async def test_a_secret_that_is_not_there_is_told(server: LocalServer) -> None:
    access = HttpAccess(allow=("127.0.0.1",), headers={"127.0.0.1": {"X-Key": "env:NO_SUCH_VARIABLE"}})

    assert "NO_SUCH_VARIABLE is not set" in await _problem(
        http_get_tool(access), url=f"http://127.0.0.1:{server.port}/"
    )


async def test_what_they_may_do_is_said() -> None:
    assert http_get_tool().annotations.read_only
    assert http_get_tool().annotations.open_world
    assert http_request_tool().annotations.destructive
    with pytest.raises(ConfigError):
        http_get_tool(HttpAccess(allow=("not a host!",)))


async def test_the_callers_time_is_kept() -> None:
    with_time = CallContext(seconds=0.0)
    output = await http_get_tool(_LOCAL).call({"url": "http://127.0.0.1:9/"}, context=with_time)
    assert output.text == "There was no answer within 0.0 seconds. Try again later."
