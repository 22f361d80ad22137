"""The examples of CONTRIBUTING.md work where the page puts them; hooks and CI run what they promise."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import yaml

from loom_core import plugin_registry
from loom_core.embedding import create_embedder, registry
from loom_core.embedding.remote_models import config, openai_compatible
from loom_core.embedding.remote_models.vendors import EMBEDDING_VENDORS
from loom_core.knowledge import KnowledgeBase, PassageVectors, RAGConfig, VectorQuery
from loom_core.knowledge.ingest.loaders import load_bytes
from loom_core.knowledge.ingest.loaders import registry as formats
from loom_core.knowledge.interface import VectorIndex
from loom_core.plugins import create
from loom_core.server.install.clients import Machine
from loom_core.server.install.launch import InstalledServer
from tests.docs import snippets
from tests.fixtures.vendors.app import FakeVendors
from tests.fixtures.vendors.script import Turn

_ROOT = Path(__file__).parents[2]
_PAGE = "CONTRIBUTING.md"
_TOP = {path.name for path in _ROOT.iterdir()}
_CUES = "1\n00:00:01,000 --> 00:00:02,000\nThe loom\nis old.\n\n2\n00:00:03,000 --> 00:00:04,000\nIt works.\n"


def _text(name: str) -> str:
    return (_ROOT / name).read_text(encoding="utf-8")


async def _example(heading: str) -> dict[str, Any]:
    """Names that the blocks below a heading of the page define."""
    start = _text(_PAGE).partition(f"### {heading}\n")[0].count("\n")
    end = start + re.split(r"^##", _text(_PAGE).partition(f"### {heading}\n")[2], flags=re.M)[0].count("\n")
    blocks = [each for each in snippets.snippets(_PAGE, "python") if start < each.line <= end + 1]
    assert blocks, f"{_PAGE} has no example of {heading}"
    names: dict[str, Any] = {}
    for block in blocks:
        await snippets.run_python(block, names)
    return names


@pytest.fixture
def registrations(monkeypatch: pytest.MonkeyPatch) -> None:
    """Plugins that an example registers are gone afterwards."""
    factories = plugin_registry._registry._factories
    monkeypatch.setattr(plugin_registry._registry, "_factories", dict(factories))


async def test_the_loader_reads_a_file_of_its_extension(monkeypatch: pytest.MonkeyPatch) -> None:
    names = await _example("A loader")
    module = ModuleType(f"{formats.__package__}.formats.subtitles")
    module.__dict__["load_subtitles"] = names["load_subtitles"]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setattr(formats, "_FORMATS", {**formats._FORMATS, **names["row"]})
    draft = load_bytes(_CUES.encode(), uri="text:a.srt", name="a.srt")
    assert draft.text == "The loom is old.\n\nIt works."
    assert [block.kind for block in draft.blocks] == ["paragraph", "paragraph"]


@pytest.mark.usefixtures("registrations")
async def test_the_retriever_finds_the_shortest_passage_first() -> None:
    await _example("A retriever")
    with KnowledgeBase("notes", memory=True, embedder="hashing") as base:
        await base.add_texts(["The loom is old and stands in the hall of the mill.", "A loom weaves."])
        found = await create("retriever", "shortest", [base]).retrieve("loom")
    assert found[0]["text"] == "A loom weaves."


async def test_the_vendor_of_language_models_is_asked() -> None:
    names = await _example("A vendor of language models")
    fake = FakeVendors([Turn(text="Yes.")])
    async with fake.http_client() as http_client:
        provider = names["AcmeProvider"](
            "deepseek-flash", base_url=fake.base_url("deepseek"), api_key=fake.key, http_client=http_client
        )
        assert provider.name == "acme"
        assert (await provider.chat([{"role": "user", "content": "Is it?"}])).content == "Yes."


async def test_the_vendor_of_embeddings_is_chosen_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    row = (await _example("A vendor of embeddings"))["row"]
    for module in (config, openai_compatible, registry):
        monkeypatch.setattr(module, "EMBEDDING_VENDORS", {**EMBEDDING_VENDORS, row.name: row})
    embedder = create_embedder({"provider": "acme", "model": "acme-embed", "dimension": 8})
    assert embedder.id == "api.acme.example/acme-embed/8"


@pytest.mark.usefixtures("registrations")
async def test_the_vector_index_finds_neighbours_for_a_knowledge_base(tmp_path: Path) -> None:
    await _example("A vector index")
    index: VectorIndex = create("vector_index", "acme", "https://x", secret=None, collection="c", dimension=3)
    index.upsert(PassageVectors([1, 2, 3], np.eye(3, dtype=np.float32), ["zh", "zh", "la"], [7, 8, 9]))
    index.delete([3, 4])
    question = np.array([0.6, 0.8, 0], dtype=np.float32)
    [every, one] = index.search([VectorQuery(question, 5), VectorQuery(question, 5, documents=[7])])
    assert [key for key, _ in every] == [2, 1]
    assert [key for key, _ in one] == [1]
    assert (index.count(), index.keys(), list(index.vectors([1, 9]))) == (2, [1, 2], [1])
    index.close()
    config = RAGConfig(vectors="acme+https://x")
    with KnowledgeBase("k", path=tmp_path / "k", embedder="hashing", config=config) as knowledge_base:
        await knowledge_base.add_texts(["The harbour of Visby."])
        answer = await knowledge_base.search("harbour", strategy="vector_first")
        assert (len(answer.items), answer.notes) == (1, ())


async def test_the_client_has_a_file_and_an_entry(tmp_path: Path) -> None:
    row = (await _example("An MCP client"))["row"]
    machine = Machine("linux", tmp_path / "home", tmp_path / "project", {})
    assert row.file(machine, "user") == tmp_path / "home" / ".acme" / "mcp.json"
    assert row.file(machine, "project") == tmp_path / "project" / ".acme" / "mcp.json"
    server = InstalledServer(
        name="loom-kb", program="loom-kb", module="loom_kb", description="", command="loom-kb", arguments=()
    )
    assert '"loom-kb"' in row.format.put("", row.section, "loom-kb", row.entry(server))


@pytest.mark.usefixtures("registrations")
async def test_the_tool_is_made_by_its_name() -> None:
    await _example("A tool")
    tool = create("tool", "count_words")
    assert (tool.name, tool.annotations.read_only) == ("count_words", True)
    assert (await tool.call({"text": "The loom weaves."})).text == "3"


def test_every_path_that_contributors_read_is_there() -> None:
    for page in (_PAGE, "RELEASING.md", "docs/versioning.md"):
        named = re.findall(r"`([\w.-]+/[\w./-]+)`", _text(page))
        paths = [path for path in named if path.split("/")[0] in _TOP and not path.startswith(".ci/work")]
        assert paths, page
        assert [path for path in paths if not (_ROOT / path).exists()] == [], page


def test_hooks_run_what_the_stage_lint_runs() -> None:
    (repository,) = yaml.safe_load(_text(".pre-commit-config.yaml"))["repos"]
    assert repository["repo"] == "local"
    stage = re.search(r"^lint\(\) \{\n(.*?)^\}", _text(".ci/run"), re.MULTILINE | re.DOTALL)
    assert stage
    hooks = [hook["entry"].removeprefix("uv run --no-sync ") for hook in repository["hooks"]]
    assert hooks == [line.strip() for line in stage[1].splitlines()]


def test_ci_runs_all_stages_on_the_oldest_and_the_newest_python_with_no_rights() -> None:
    workflow = yaml.safe_load(_text(".github/workflows/ci.yml"))
    (job,) = workflow["jobs"].values()
    assert workflow["permissions"] == {"contents": "read"}
    assert [step["run"] for step in job["steps"] if "run" in step] == [".ci/run"]
    classifiers = tomllib.loads(_text("pyproject.toml"))["project"]["classifiers"]
    supported = [each[len("Programming Language :: Python :: ") :] for each in classifiers if ":: 3." in each]
    assert job["strategy"]["matrix"]["python"] == [supported[0], supported[-1]]


def test_the_changelog_has_a_day_for_the_version_of_the_packages() -> None:
    version = tomllib.loads(_text("pyproject.toml"))["project"]["version"]
    released = re.sub(r"\.dev\d+$", "", version)  # 0.1.0.dev1 may come before 0.1.0
    headings = re.findall(r"^## (.+)$", _text("CHANGELOG.md"), re.MULTILINE)
    assert headings[0] == "[Unreleased]"
    assert re.fullmatch(rf"\[{re.escape(released)}\] - \d{{4}}-\d\d-\d\d", headings[1])
