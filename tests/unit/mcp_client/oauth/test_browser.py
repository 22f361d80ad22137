"""The person's browser, which comes back to a port of this machine."""

from __future__ import annotations

import anyio
import httpx2
import pytest

from loom_core.errors import ConfigError, LoginError
from loom_core.mcp_client.oauth.browser import LoopbackBrowser


async def came_back(*targets, shown="https://login.example/?q=茶"):
    """Return what a browser gets for each of these requests, and what the program gets."""
    pages, visited = [], []
    async with LoopbackBrowser(visited.append) as browser:
        await browser.visit(shown)

        async def browse():
            async with httpx2.AsyncClient(verify=False) as client:
                for target in targets:
                    page = await client.get(httpx2.URL(browser.redirect_uri).join(target))
                    pages.append(page)

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(browse)
            answer = await browser.answer()
    assert visited == [shown]
    return pages, answer


async def test_what_the_browser_comes_back_with_is_the_answer():
    (page,), answer = await came_back("/callback?code=a%20b&state=%E8%8C%B6&iss=https%3A%2F%2Flogin.example")
    assert answer == {"code": "a b", "state": "茶", "iss": "https://login.example"}
    assert page.status_code == 200
    assert "You are logged in" in page.text
    assert page.headers["referrer-policy"] == "no-referrer"


async def test_a_refusal_is_an_answer_too():
    (page,), answer = await came_back("/callback?error=access_denied&state=s")
    assert answer["error"] == "access_denied"
    assert "was refused" in page.text


@pytest.mark.hostile("tokens")
async def test_other_requests_of_a_browser_are_no_answer():
    pages, answer = await came_back("/favicon.ico", "/callback", "/callback?code=c")
    assert [page.status_code for page in pages] == [404, 404, 200]
    assert answer == {"code": "c"}


@pytest.mark.hostile("tokens")
async def test_who_connects_and_says_nothing_keeps_no_one_waiting():
    async with LoopbackBrowser(lambda _: None) as browser:
        await browser.visit("https://login.example/")
        place = httpx2.URL(browser.redirect_uri)
        async with (
            await anyio.connect_tcp(place.host, place.port),
            httpx2.AsyncClient(verify=False) as client,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(client.get, f"{place}?code=c")
            assert await browser.answer() == {"code": "c"}


async def test_no_one_is_waited_for_without_end():
    async with LoopbackBrowser(lambda _: None, seconds=0.05) as browser:
        await browser.visit("https://login.example/")
        with pytest.raises(LoginError, match=r"There was no login within 0\.05 seconds"):
            await browser.answer()


async def test_a_port_that_is_taken_is_told():
    async with LoopbackBrowser(lambda _: None) as first:
        port = httpx2.URL(first.redirect_uri).port
        with pytest.raises(ConfigError, match=f"port {port}"):
            await LoopbackBrowser(lambda _: None, port=port).__aenter__()
