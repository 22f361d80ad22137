"""Every server passes what the official conformance suite asks of any, in both revisions."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path

import anyio
import pytest
from mcp import Client

from tests.fixtures.conformance import GENERIC

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals"),
]

_HERE = Path(__file__).parent
_SOURCES = {"港口": {"kind": "documents", "documents": [{"text": "# 青岛港\n\n青岛港的港长是李明。"}]}}
_NOTE = {"text": "# 灯塔\n\n青岛港的灯塔。", "title": "灯塔"}

# They call diagnostic tools of the suite, which only a server of fixtures has.
_OF_FIXTURES = frozenset(
    {
        "sep-2575-server-rejects-undeclared-capability",
        "sep-2575-missing-capability-http-400",
        "sep-2575-server-sends-tools-list-changed-on-subscription",
        "sep-2575-server-sends-prompts-list-changed-on-subscription",
    }
)
# It wants a resource that is listed, and what sources hold is found, not listed.
_OF_LISTS = frozenset({"sep-2549-resources-read-caching-hints"})


@dataclass(frozen=True, slots=True)
class Case:
    """A server under test.

    Attributes:
        name: of its command.
        module: behind the command.
        options: of `serve`.
        without: checks that it cannot pass.
    """

    name: str
    module: str
    options: tuple[str, ...] = ()
    without: frozenset[str] = _OF_FIXTURES

    def serve(self, home: Path) -> list[str]:
        return [sys.executable, "-m", self.module, "serve", "--home", str(home), *self.options]


KB = Case("loom-kb", "loom_kb", ("--embedder", "hashing"))
QUERY = Case("loom-query-server", "loom_query", without=_OF_FIXTURES | _OF_LISTS)
AGENT = Case("loom-agent-server", "loom_agent", ("--provider", "mock"))
FLOW = Case("loom-flow-server", "loom_flow")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Loom's home of all servers of this file; the search has a source in it."""
    home = tmp_path_factory.mktemp("home")
    (home / "query.json").write_text(json.dumps({"sources": _SOURCES}, ensure_ascii=False), encoding="utf-8")
    return home


@pytest.fixture(scope="module", params=[KB, QUERY, AGENT, FLOW], ids=lambda case: case.name)
def case(request: pytest.FixtureRequest) -> Case:
    return request.param


@pytest.fixture(scope="module")
def url(case: Case, home: Path, served: Callable[..., AbstractContextManager[str]]) -> Iterator[str]:
    """Where the server is; a knowledge base has a document, without which there is no resource to look at."""
    with served(case.serve(home), case.name) as url:
        if case is KB:
            anyio.run(_add, url)
        yield url


async def _add(url: str) -> None:
    async with Client(url) as client:
        added = await client.call_tool("add", _NOTE)
        about = {"id": added.structured_content["job"]["id"], "action": "wait"}
        ended = await client.call_tool("job", about)  # a busy machine answers before it is in
        assert ended.structured_content["jobs"][0]["state"] == "done"


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_it_passes_the_scenarios_that_need_no_fixture(case, url, suite, revision, tmp_path):
    _, found = suite.run(url, revision, tmp_path)
    objections = {name: found[name].objections(without=case.without) for name in GENERIC[revision]}
    assert {name: lines for name, lines in objections.items() if lines} == {}
    assert [name for name in GENERIC[revision] if not found[name].passed] == []
