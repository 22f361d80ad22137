"""Findings of `doctor` about the configuration, the language model and the servers behind sources."""

from __future__ import annotations

import pytest
from loom_query.command_line.doctor import own_checks

from loom_core.server.doctor.checks import run_paste_safe


@pytest.fixture
def sections(settings):
    """Examines the home; gives the sections by name."""

    async def examine():
        made = settings()
        report = await run_paste_safe(own_checks(made), program="loom-query-server", version="")
        return {section.name: section for section in report.sections}

    return examine


def codes(section):
    return [finding.code for finding in section.findings]


async def test_a_home_without_anything_says_where_sources_come_from(sections):
    found = await sections()
    assert codes(found["configuration"]) == ["no-source"]
    assert "loom-kb" in found["configuration"].findings[0].remedy
    assert "language model" not in found


async def test_what_is_wrong_is_told_with_its_place_and_what_to_do(configure, sections, harbour):
    configure(
        {
            "harbour": harbour,
            "bad": {"kind": "http", "url": "https://a.example", "limit": 3},
            "far": {"kind": "mcp", "server": {"command": "loom-no-such-program"}},
            "inside": {"kind": "http", "url": "http://10.0.0.1/search"},
        },
        llm={"provider": "deepseek", "api_key": "env:LOOM_TEST_UNSET"},
    )
    found = await sections()
    bad, inside = found["configuration"].findings
    assert "10.0.0.1 is not allowed" in inside.message
    assert inside.remedy.endswith("with `allow` of the source.")
    assert bad.code == "source-unusable"
    assert "query.json:" in bad.message
    assert bad.remedy == "Did you mean limit_field?"
    assert found["configuration"].facts["sources"] == {"harbour": "documents", "far": "mcp"}
    assert codes(found["language model"]) == ["model-unusable"]
    assert "LOOM_TEST_UNSET" in found["language model"].findings[0].message
    assert codes(found["source far"]) == ["source-unusable"]
    assert "loom-no-such-program" in found["source far"].findings[0].message


async def test_remote_sources_are_asked_whether_they_answer(configure, sections, harbour, local_servers):
    server = local_servers()
    url = server.answers("/search", b'{"results": []}')
    away = server.answers("/away", b"{}", status=503)
    service = {"kind": "http", "allow": ["127.0.0.1"]}
    configure({"harbour": harbour, "wiki": {**service, "url": url}, "away": {**service, "url": away}})
    found = await sections()
    assert [(each.severity, each.message) for each in found["source wiki"].findings] == [
        ("ok", "It answers.")
    ]
    assert codes(found["source away"]) == ["source-unusable"]
    assert "503" in found["source away"].findings[0].message
    assert "source harbour" not in found, "it is in this program"


async def test_a_configuration_that_is_none_hides_nothing_else(configure, sections, home):
    configure()
    (home / "query.json").write_text("{", encoding="utf-8")
    found = await sections()
    assert codes(found["configuration"]) == ["configuration-unreadable"]
    assert set(found) == {"configuration"}
