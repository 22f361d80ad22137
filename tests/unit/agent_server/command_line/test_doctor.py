"""Findings of `doctor` about the profiles, their models and tools, knowledge, servers and runs."""

from __future__ import annotations

import json

import pytest
from loom_agent.command_line.doctor import own_checks

from loom_core.server.doctor.checks import run_paste_safe


@pytest.fixture
def sections(settings):
    """Examines the home; gives the sections by name."""

    async def examine(**changes):
        made = settings(**changes)
        report = await run_paste_safe(own_checks(made), program="loom-agent-server", version="")
        return {section.name: section for section in report.sections}

    return examine


def codes(section):
    return [finding.code for finding in section.findings]


async def test_a_home_without_anything_and_without_a_key_says_what_to_set(sections):
    found = await sections(provider="")
    assert list(found) == ["configuration"]
    assert codes(found["configuration"]) == ["model-unusable"]
    assert "DEEPSEEK_API_KEY" in found["configuration"].findings[0].remedy


async def test_the_demonstration_is_fine(sections):
    found = await sections()
    assert codes(found["configuration"]) == ["profiles"]
    assert found["configuration"].facts["profiles"] == {
        "demonstration": "mock/demonstration (--provider names it)"
    }


async def test_what_is_wrong_with_a_profile_is_told_by_its_name(sections, configure):
    configure(
        default={},
        keyless={"model": "deepseek"},
        rootless={"tools": {"files": {"root": "nowhere"}}},
        learned={"knowledge": ["产品文档"]},
    )
    found = await sections()
    keyless, rootless = found["configuration"].findings
    assert "'keyless'" in keyless.message
    assert "DEEPSEEK_API_KEY" in keyless.remedy
    assert "'rootless'" in rootless.message
    assert codes(found["knowledge"]) == ["knowledge-missing"]
    assert "产品文档" in found["knowledge"].findings[0].message


async def test_skills_that_cannot_be_used_are_told_with_their_file(sections, configure, home):
    for name, front in {"letters": "description: Writes letters.", "forms": "name: forms"}.items():
        (home / "skills" / name).mkdir(parents=True)
        (home / "skills" / name / "SKILL.md").write_text(f"---\n{front}\n---\n", encoding="utf-8")
    configure(研究={"skills": ["skills"]}, 写信={"skills": ["none/*"]})
    found = (await sections())["configuration"].findings
    assert [finding.code for finding in found] == ["skill-problem", "skill-problem", "skills-unusable"]
    assert "forms/SKILL.md: `description` is missing" in found[0].message
    assert "none/*" in found[2].message


async def test_a_compressor_that_is_not_installed_is_told(sections, configure):
    configure(研究={"compaction": {"compressor": "none-such"}})
    (finding,) = (await sections())["configuration"].findings
    assert finding.code == "compaction-unusable"
    assert finding.message == "The profile '研究': There is no compressor 'none-such'."


async def test_a_rule_about_a_tool_that_there_is_not_is_told_with_the_nearest(sections, configure):
    rules = [{"action": "deny", "tool": tool} for tool in ("shel", "shell", "文件:write_file", "http_*")]
    configure(研究={"permissions": rules})
    (finding,) = (await sections())["configuration"].findings
    assert finding.message == "The profile '研究': a rule is about the tool 'shel', which does not exist."
    assert finding.remedy.startswith("Did you mean 'shell'? ")


async def test_a_file_that_cannot_be_read_is_told_with_its_place(sections, home):
    (home / "agent.json").write_text('{"profiles": {"a": 1}}', encoding="utf-8")
    found = await sections()
    assert codes(found["configuration"]) == ["configuration-unreadable"]
    assert "agent.json:1:15:" in found["configuration"].findings[0].message


async def test_servers_that_cannot_be_started_are_named(sections, home):
    entries = {"good": {"command": "python"}, "bad": {"url": 5}}
    (home / "mcp.json").write_text(json.dumps({"mcpServers": entries}), encoding="utf-8")
    found = await sections()
    assert found["MCP servers"].facts["servers"] == ["good"]
    assert codes(found["MCP servers"]) == ["server-unusable"]
    assert "bad" in found["MCP servers"].findings[0].message


async def test_runs_that_wait_are_counted(sections, running):
    async with running() as service:
        run = await service.wait_until_idle((await service.start("note that")).id, seconds=30)
        assert run.status == "input_required"
    found = await sections()
    assert found["runs"].facts["latest runs"] == {"input_required": 1}
    assert codes(found["runs"]) == ["runs-wait"]
    assert run.id in found["runs"].findings[0].remedy


async def test_a_journal_that_is_none_is_told(sections, home):
    (home / "agent").mkdir()
    (home / "agent" / "runs.db").write_text("no database", encoding="utf-8")
    found = await sections()
    assert codes(found["runs"]) == ["journal-unreadable"]
