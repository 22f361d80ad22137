"""Every block of JSON and TOML on a page is taken by the reader that it is for, without a complaint."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from loom_agent.command_line.evaluation import EvaluationCase
from loom_agent.profiles.agent_file import read_agent_file
from loom_kb.command_line.evaluation import EvaluationQuestion
from loom_query.configuration.query_file import read_query_file

from loom_core.flow.config.flow_file import flow_file_problems
from loom_core.flow.regression import read_utterances
from loom_core.knowledge.filters import filter_mapping, parse_filters
from loom_core.llm.config import ProviderConfig
from loom_core.mcp_client.configuration.config_file import ServerFile
from loom_core.mcp_client.configuration.expansion import Expansion
from loom_core.mcp_client.configuration.server_config import ServerConfig
from loom_core.server.cli.evaluation import read_cases
from loom_core.tools.permission.rule import read_rules
from tests.docs import snippets

_SET = {"GITHUB_TOKEN": "x", "WIKI_HOST": "wiki.example", "WIKI_KEY": "x", "TOKEN": "x"}


def _servers(path: Path) -> None:
    entries = ServerFile(path, path.read_bytes()).entries
    assert entries
    for name, entry in entries.items():
        plain = json.loads(json.dumps(entry))
        ServerConfig.of_entry(name, plain, expansion=Expansion(_SET), folder=path.parent)


def _agents(path: Path) -> None:
    assert read_agent_file(path).profiles


def _sources(path: Path) -> None:
    file = read_query_file(path)
    assert file.sources
    assert not file.problems


def _flows(path: Path) -> None:
    assert flow_file_problems(path) == []


def _model(path: Path) -> None:
    ProviderConfig.model_validate(json.loads(path.read_text(encoding="utf-8")))


def _rules(path: Path) -> None:
    assert read_rules(json.loads(path.read_text(encoding="utf-8")))


def _utterances(path: Path) -> None:
    assert read_utterances(path.read_text(encoding="utf-8"), name=path.name)


def _questions(path: Path) -> None:
    read_cases(path, EvaluationQuestion, advice="")


def _cases(path: Path) -> None:
    read_cases(path, EvaluationCase, advice="")


def _filters(path: Path) -> None:
    given = filter_mapping(json.loads(path.read_text(encoding="utf-8")))
    assert given
    assert parse_filters(given, list(given))


_READERS: Mapping[str, Callable[[Path], None]] = {
    "mcpServers": _servers,
    "profiles": _agents,
    "sources": _sources,
    "flows": _flows,
    "message": _utterances,
    "goal": _cases,
    "question": _questions,
    "action": _rules,
    "provider": _model,
    "tags": _filters,
    "field": _filters,
}
"""Who reads what has this key; the first that is there counts."""


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in _SET.items():
        monkeypatch.setenv(name, value)


@pytest.mark.usefixtures("environment")
def test_every_block_of_json_is_what_its_reader_takes(tmp_path: Path) -> None:
    read: list[str] = []
    for page in snippets.pages():
        for snippet in snippets.snippets(page, "json", "jsonc"):
            key = next((key for key in _READERS if f'"{key}":' in snippet.text), None)
            assert key, f"{snippet}: nothing reads this"
            file = tmp_path / f"{len(read)}.json"
            file.write_text(snippet.text, encoding="utf-8")
            try:
                _READERS[key](file)
            except Exception as error:
                error.add_note(str(snippet))
                raise
            read.append(key)
    assert set(read) == set(_READERS)


def test_every_block_of_toml_is_a_distribution_that_offers_plugins() -> None:
    found = [block for page in snippets.pages() for block in snippets.snippets(page, "toml")]
    assert found
    for snippet in found:
        points = tomllib.loads(snippet.text)["project"]["entry-points"]["loom.plugins"]
        assert all(value.startswith("my_package.") for value in points.values()), str(snippet)
