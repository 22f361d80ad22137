"""Web pages become documents: fetched by the worker, each for itself, under the address that was given."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loom_core.errors import ConfigError, InvalidInputError, NetError
from loom_core.knowledge.rag import GraphRAGKnowledgeBase
from loom_core.knowledge.rag.requests import PagesRequest

if TYPE_CHECKING:
    from tests.fixtures.local_server import LocalServer

pytestmark = pytest.mark.slow

DOCUMENTS = Path(__file__).parents[3] / "fixtures" / "documents"
ALLOWED = ["127.0.0.1"]
PAGE = """<!doctype html><html><head><meta charset=utf-8><title>{title}</title></head>
<body><nav>Menu</nav><main><h1>{title}</h1><p>{text}</p></main></body></html>"""


@pytest.fixture
def server(local_servers) -> LocalServer:
    return local_servers()


def page(title: str, text: str) -> bytes:
    return PAGE.format(title=title, text=text).encode()


def reasons(kb: GraphRAGKnowledgeBase, job) -> list[str]:
    return [item.reason for item in kb.store.jobs.report(job, ["failed"])]


async def test_pages_are_found_by_their_content_and_cited_by_their_address(kb, server) -> None:
    harbour = server.answers("/harbour", page("The harbour", "The harbour is old."), Content_Type="text/html")
    port = server.answers("/港口", page("港口", "港口建于1974年。"))
    server.routes["/%E6%B8%AF%E5%8F%A3"] = server.routes["/港口"]
    job = await kb.add_urls([harbour + "#part", port, harbour], allow_net=ALLOWED, metadata={"tags": ["web"]})
    assert job.counts == {"added": 2}, reasons(kb, job)
    (found, *_) = (await kb.search("How old is the harbour?", filters={"tags": "web"})).items
    assert found.source == harbour
    assert found.metadata["title"] == "The harbour"
    assert "Menu" not in found.content
    (found, *_) = (await kb.search("港口是哪一年建的？")).items
    assert found.source == port.replace("港口", "%E6%B8%AF%E5%8F%A3")


async def test_the_same_address_again_costs_nothing_or_replaces_the_page(kb, server) -> None:
    url = server.answers("/", page("One", "The first text."))
    await kb.add_urls([url], allow_net=ALLOWED)
    assert (await kb.add_urls([url], allow_net=ALLOWED)).counts == {"unchanged": 1}
    server.answers("/", page("Two", "The second text."))
    assert (await kb.add_urls([url], allow_net=ALLOWED)).counts == {"updated": 1}
    assert kb.store.documents.counts()[0] == 1


async def test_a_page_keeps_the_address_that_was_asked_for(kb, server) -> None:
    server.answers("/new", page("New", "It moved here."))
    url = server.answers("/old", status=301, Location="/new")
    await kb.add_urls([url], allow_net=ALLOWED)
    assert [row.uri for row in kb.store.documents.list(after=0, limit=9)] == [url]


async def test_the_format_is_what_server_and_content_say(kb, server) -> None:
    office = "application/vnd.openxmlformats-officedocument"
    cases = [
        ("/x.php", "text/html; charset=utf-8", "article.html", "text/html"),
        ("/x", "", "article.html", "text/html"),
        ("/x.txt", "text/plain", "article.html", "text/html"),
        ("/report", "application/pdf", "harbour.pdf", "application/pdf"),
        ("/report.aspx", "application/octet-stream", "harbour.pdf", "application/pdf"),
        ("/dl", "application/zip", "handbook.docx", f"{office}.wordprocessingml.document"),
        ("/dl.docx", "application/octet-stream", "handbook.docx", f"{office}.wordprocessingml.document"),
        (
            "/plan",
            f"{office}.presentationml.presentation",
            "plan.pptx",
            f"{office}.presentationml.presentation",
        ),
        ("/sheet", "application/octet-stream", "ships.xlsx", f"{office}.spreadsheetml.sheet"),
        ("/readme.md", "text/plain", "guide.md", "text/markdown"),
        ("/notes", "text/markdown", "guide.md", "text/markdown"),
        ("/a.b/raw", "text/plain", "guide.md", "text/plain"),
        ("/licence", "", "guide.md", "text/plain"),
    ]
    urls = [
        server.answers(path, (DOCUMENTS / name).read_bytes(), **({"Content_Type": kind} if kind else {}))
        for path, kind, name, _ in cases
    ]
    job = await kb.add_urls(urls, allow_net=ALLOWED)
    assert job.counts == {"added": len(cases)}, reasons(kb, job)
    types = {row.uri: row.mime for row in kb.store.documents.list(after=0, limit=99)}
    assert [types[url] for url in urls] == [mime for *_, mime in cases]


async def test_the_charset_of_the_header_counts(kb, server) -> None:
    url = server.answers("/", "港口很老。".encode("gb18030"), Content_Type="text/plain; charset=gb18030")
    await kb.add_urls([url], allow_net=ALLOWED)
    (found, *_) = (await kb.search("港口")).items
    assert found.content == "港口很老。"


async def test_a_page_that_cannot_be_had_fails_alone_and_says_why(kb, server) -> None:
    good = server.answers("/good", page("Good", "This one is good."))
    bad = {
        server.answers("/gone", b"no", status=404) + "?key=secret": "404 Not Found",
        server.answers("/odd", b"no", status=799): "799",
        server.answers("/inward", status=302, Location="http://169.254.169.254/"): "metadata service",
        server.answers("/empty", b""): "is empty",
        server.answers("/image", b"\x89PNG\r\n\x1a\n" + bytes(100), Content_Type="image/png"): "(image/png)",
        server.answers("/packed", b"x", Content_Encoding="br"): "was not asked for",
    }
    job = await kb.add_urls([*bad, good], allow_net=ALLOWED)
    assert job.counts == {"added": 1, "failed": len(bad)}
    for said, (url, reason) in zip(reasons(kb, job), bad.items(), strict=True):
        assert reason in said, url
        assert "secret" not in said
    assert (await kb.search("Which one is good?")).items


async def test_a_page_beyond_the_size_of_a_document_is_not_read(kb, server) -> None:
    def announce(asked, connection) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 99999999999\r\n\r\n")

    server.routes["/"] = announce
    job = await kb.add_urls([server.url("/")], allow_net=ALLOWED)
    assert "more than 67,108,864 bytes" in reasons(kb, job)[0]


@pytest.mark.hostile("addresses")
def test_an_address_of_a_private_place_is_refused_at_once(kb, server) -> None:
    for url in (
        server.url("/"),
        "http://localhost/",
        "http://169.254.169.254/latest/",
        "file:///etc/passwd",
        "x",
    ):
        with pytest.raises(NetError):
            kb.submit(PagesRequest(["https://example.com/", url]))
    with pytest.raises(InvalidInputError):
        kb.submit(PagesRequest([]))
    with pytest.raises(ConfigError):
        kb.submit(PagesRequest(["https://example.com/"], allow_net=["not a host"]))
    assert kb.store.jobs.list() == []
    assert server.asked == []


async def test_nothing_is_fetched_before_the_work_begins(kb, server) -> None:
    url = server.answers("/", page("Later", "It is fetched later."))
    job = kb.submit(PagesRequest([url], allow_net=ALLOWED))
    assert kb.job(job).state == "queued"
    assert server.asked == []
    await kb.worker.drain()
    assert kb.job(job).counts == {"added": 1}
    assert [asked.target for asked in server.asked] == ["/"]


async def test_what_a_page_says_of_itself_becomes_fields(kb, server) -> None:
    text = '<html><head><meta name="author" content="Ada"></head><body><p>By Ada.</p></body></html>'
    await kb.add_urls([server.answers("/", text.encode())], allow_net=ALLOWED, metadata={"project": "loom"})
    assert (await kb.search("Ada", filters={"author": "Ada", "project": "loom"})).items
