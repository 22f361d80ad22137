"""`query.json`: what is understood, and how what is wrong is told."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from loom_query.configuration.mcp_config import McpConfig
from loom_query.configuration.query_file import read_query_file
from loom_query.configuration.source_config import (
    KINDS,
    DocumentsConfig,
    LocalConfig,
    SourceConfigBase,
    config_model,
)

from loom_core.errors import ConfigError
from loom_core.knowledge.sources.remote.http import HTTPKnowledgeConfig
from loom_core.knowledge.sources.remote.result_mapping import ResultMapping


@pytest.fixture
def written(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "query.json"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def test_without_a_file_all_local_knowledge_bases_are_sources(tmp_path: Path):
    (source,) = read_query_file(tmp_path / "query.json").sources
    assert (source.kind, source.config) == ("local", LocalConfig())


@pytest.mark.parametrize("text", ["", "// nothing yet\n", '{"deadline": 3}'])
def test_so_they_are_where_the_file_names_none(text, written):
    (source,) = read_query_file(written(text)).sources
    assert source.config == LocalConfig()
    assert source.deadline == (3 if text.startswith("{") else 10)


def test_a_file_that_was_asked_for_has_to_be_there(tmp_path: Path):
    with pytest.raises(ConfigError, match="There is no file"):
        read_query_file(tmp_path / "other.json", required=True)


def test_every_kind_of_source_is_read_with_comments_and_trailing_commas(written):
    file = read_query_file(
        written(
            """{
              // what the team knows
              "deadline": 8,
              "sources": {
                "笔记": {"kind": "local", "knowledge_base": "notes", "hints": ["决定"], "deadline": 2},
                "wiki": {"kind": "http", "url": "https://wiki.example/search", "mapping": {"text": "body"}},
                "issues": {"kind": "mcp", "server": {"command": "tracker"}, "tool": "find"},
                "faq": {"kind": "documents", "documents": [{"text": "Nine."}]}, /* short */
              },
              "llm": "deepseek/deepseek-flash",
            }"""
        )
    )
    assert not file.problems
    configs = {source.name: source.config for source in file.sources}
    assert list(configs) == ["笔记", "wiki", "issues", "faq"]
    assert isinstance(configs["wiki"], HTTPKnowledgeConfig)
    assert configs["wiki"].mapping.text == "body"
    assert isinstance(configs["issues"], McpConfig)
    assert (configs["issues"].server, configs["issues"].tool) == ({"command": "tracker"}, "find")
    assert isinstance(configs["faq"], DocumentsConfig)
    assert [source.deadline for source in file.sources] == [2, 8, 8, 8]
    assert file.sources[0].written.hints == ("决定",)
    assert file.llm is not None
    assert (file.llm.provider, file.llm.model) == ("deepseek", "deepseek-flash")


@pytest.mark.parametrize(
    ("entry", "message", "advice"),
    [
        ('{"kind": "loca"}', "3:11: kind should be 'local'", "elasticsearch or opensearch"),
        ("{}", "3:5: kind is missing", "elasticsearch or opensearch"),
        ("[]", "3:5: 'x' is not an object", '{"kind": "local"}'),
        ('{"kind": "http"}', "3:5: url is missing", "URL of the API."),
        (
            '{"kind": "http", "url": "https://a.example", "limit": 3}',
            "3:55: limit is not known here",
            "limit_field",
        ),
        ('{"kind": "local", "deadline": 0}', "3:28: deadline should be greater than 0", "at most 40"),
        (
            '{"kind": "documents", "documents": []}',
            "3:32: documents should have at least 1 item.",
            "each with a text",
        ),
        (
            '{"kind": "documents", "documents": [{"text": ""}]}',
            "3:46: documents[0].text should have at least 1 character.",
            "each with a text",
        ),
        ('{"kind": "mcp"}', "3:5: server is missing", "mcp.json"),
    ],
)
def test_what_is_wrong_with_a_source_is_told_with_its_place_and_costs_that_source_only(
    entry, message, advice, written
):
    path = written(f'{{\n  "sources": {{\n    "x": {entry},\n    "好": {{"kind": "local"}}\n  }}\n}}')
    file = read_query_file(path)
    assert [source.name for source in file.sources] == ["好"]
    (problem,) = file.problems
    assert problem.name == "x"
    assert problem.message.startswith(f"{path}:{message}")
    assert advice in problem.advice


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"sources": {', ":1:14: the text ends too early"),
        (
            '{"sources": {"a": {"kind": "local"}, "a": {"kind": "local"}}}',
            ":1:38: the name 'a' is duplicated",
        ),
        ('{\n "source": {}}', ":2:2: 'source' is not known here"),
        ('{"sources": []}', ":1:2: sources is not an object"),
        ('{"deadline": true}', ":1:2: deadline is not a number"),
        ('{"deadline": 41}', ":1:2: deadline is not a number"),
        ("[]", ":1:1: expected an object"),
    ],
)
def test_a_file_that_is_none_is_refused_with_line_and_column(text, message, written):
    with pytest.raises(ConfigError) as error:
        read_query_file(written(text))
    assert message in error.value.message
    assert error.value.advice


def test_a_file_in_another_encoding_is_refused(tmp_path: Path):
    (tmp_path / "query.json").write_bytes("{}".encode("utf-16"))
    with pytest.raises(ConfigError, match="UTF-8"):
        read_query_file(tmp_path / "query.json")


def test_a_wrong_model_is_told_and_costs_no_source(written):
    file = read_query_file(written('{\n"llm": {"provider": "deepseek", "api_key": "sk-very-secret"}}'))
    assert file.llm is None
    assert ":2:1: " in file.llm_problem
    assert "very-secret" not in file.llm_problem
    assert file.sources


def test_variables_are_put_in_and_known(written, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("WIKI_HOST", "wiki.example")
    file = read_query_file(
        written(
            '{"sources": {"w": {"kind": "http", "url": "https://${WIKI_HOST}/s",'
            ' "headers": {"Authorization": "Bearer env:WIKI_KEY"}},'
            ' "u": {"kind": "http", "url": "https://${LOOM_TEST_UNSET}/s"},'
            ' "t": {"kind": "documents", "documents": [{"text": "${NOT_EXPANDED}"}]}}}'
        )
    )
    wiki, texts = (source.config for source in file.sources)
    assert isinstance(wiki, HTTPKnowledgeConfig)
    assert wiki.url == "https://wiki.example/s"
    assert isinstance(texts, DocumentsConfig)
    assert texts.documents[0].text == "${NOT_EXPANDED}"
    assert {"WIKI_HOST", "WIKI_KEY"} <= set(file.variables)
    (problem,) = file.problems
    assert "LOOM_TEST_UNSET is not set" in problem.message


def test_no_secret_is_in_what_is_shown_of_a_source(written):
    file = read_query_file(
        written(
            '{"sources": {"w": {"kind": "http", "url": "https://w.example/s", "fields": {"key": "hush-1"},'
            ' "headers": {"X": "hush-2"}}, "m": {"kind": "mcp", "server": {"url": "https://u:hush-3@m"}},'
            ' "b": {"kind": "http", "url": 3, "headers": {"X": ["hush-4"]}}}}'
        )
    )
    assert "hush" not in repr(file)


@pytest.mark.parametrize("name", ["", " ", "a\\u0007", "a\\u202e", "x" * 65])
def test_a_name_that_would_act_on_who_reads_it_is_refused(name, written):
    file = read_query_file(written(f'{{"sources": {{"{name}": {{"kind": "local"}}}}}}'))
    assert not file.sources
    assert "cannot be called so" in file.problems[0].message


def refusal_of(path: Path) -> str:
    try:
        read_query_file(path)
    except ConfigError as error:
        return error.message
    return ""


@pytest.mark.hostile("expressions and configurations")
@given(text=st.text(alphabet='{}[]",:/*\\ \n0eksource"documents港', max_size=60))
def test_any_text_is_read_or_refused_with_a_place(text, tmp_path_factory):
    path = tmp_path_factory.getbasetemp() / "any-query.json"
    path.write_text(text, encoding="utf-8")
    refusal = refusal_of(path)
    assert not refusal or refusal.startswith(f"{path}:")


@pytest.mark.parametrize("kind", KINDS)
def test_every_setting_is_in_the_reference(kind):
    text = (Path(__file__).parents[4] / "docs" / "reference" / "query-config.md").read_text(encoding="utf-8")
    settings = {*SourceConfigBase.model_fields, *config_model(kind).model_fields, *ResultMapping.model_fields}
    assert [name for name in settings if f"`{name}`" not in text] == []
