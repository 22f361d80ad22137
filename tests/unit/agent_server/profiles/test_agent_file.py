"""`agent.json`: what it means, and what is said of a file that is wrong."""

from __future__ import annotations

import anyio
import pytest
from jsonschema import Draft202012Validator
from loom_agent.profiles.agent_file import DEMONSTRATION, json_schema, read_agent_file
from loom_agent.profiles.agents import Agents

from loom_core.errors import ConfigError, NotFoundError
from loom_core.jsonc import JsonReader
from loom_core.runs.journal import Journal
from loom_core.tools import ToolRetries
from tests.fixtures.tool_turns import Doing


@pytest.fixture
def read(tmp_path):
    def read(text, **options):
        path = tmp_path / "agent.json"
        path.write_text(text, encoding="utf-8")
        return read_agent_file(path, **options)

    return read


FULL = """
{
  // comments and trailing commas are welcome
  "profiles": {
    "研究": {
      "description": "查资料",
      "model": "deepseek/deepseek-flash",
      "options": { "effort": "low", "max_tokens": 2000 },
      "tools": { "files": { "root": "~/notes" }, "http": { "only": ["example.com"] } },
      "mcp": { "servers": ["browser"] },
      "knowledge": ["产品文档"],
      "permissions": [{ "action": "deny", "tool": "browser:*", "args": { "url": "*://10.*" } }],
      "budget": { "iterations": 20, "cost": 0.5 },
      "approvals": { "via_tool": "off", "deadline_seconds": 60, "who": ["ops"] },
      "compaction": { "model": "ollama/qwen3", "window": 32000 },
    },
    "default": { "model": { "provider": "openai", "api_key": "env:MY_KEY" }, "knowledge": "all" },
  },
}
"""


def test_a_whole_file_is_read(read):
    file = read(FULL)
    assert list(file.profiles) == ["研究", "default"]
    assert file.default == "default"
    assert file.variables == ("MY_KEY",)
    found = file.profile("研究")
    assert (found.model.provider, found.model.model) == ("deepseek", "deepseek-flash")
    assert found.compaction.model.provider == "ollama"
    assert found.budget.budget().cost == 0.5
    assert found.select(found.knowledge, ["产品文档", "other"]) == ["产品文档"]
    assert file.profile("").model.provider == "openai"


def test_the_published_schema_takes_what_the_server_takes_and_nothing_else():
    schema = Draft202012Validator(json_schema())
    assert schema.is_valid(JsonReader().read(FULL).value)
    assert not schema.is_valid({"profiles": {"a": {"modle": "deepseek"}}})
    assert not schema.is_valid({"profiles": {"a": {"budget": {"iterations": 0}}}})


def test_without_a_file_there_is_one_profile(tmp_path):
    file = read_agent_file(tmp_path / "agent.json")
    assert list(file.profiles) == ["default"]
    assert list(read_agent_file(tmp_path / "agent.json", provider="mock").profiles) == [DEMONSTRATION]
    with pytest.raises(ConfigError, match="There is no file"):
        read_agent_file(tmp_path / "agent.json", required=True)


@pytest.mark.parametrize("text", ["", "// nothing\n", "{}", '{"profiles": {}}'])
def test_a_file_that_names_no_profile_counts_as_none(read, text):
    assert list(read(text).profiles) == ["default"]


def test_the_first_profile_is_meant_where_none_is_called_default(read):
    assert read('{"profiles": {"b": {}, "a": {}}}').default == "b"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            '{"profiles": {"a": {"modle": "x"}}}',
            ":1:21: profiles.a.modle is not known here. Did you mean model?",
        ),
        ('{"profil": {}}', ":1:2: profil is not known here. Did you mean profiles?"),
        (
            '{"profiles": {"a": {"tools": {"file": {}}}}}',
            ":1:31: profiles.a.tools.file is not known here. Did you mean files?",
        ),
        ('{"profiles": {"a": {"tools": {"files": {}}}}}', ":1:31: profiles.a.tools.files lacks 'root'."),
        (
            '{"profiles": {\n "a": {"budget": {"iterations": 0}}}}',
            ":2:19: profiles.a.budget.iterations should be greater than or equal to 1.",
        ),
        ('{"profiles": {"a": {"knowledge": 5}}}', ":1:21: profiles.a.knowledge should be a list."),
        ('{"profiles": {"a": 3}}', ":1:15: profiles.a should be an object."),
        ('{"profiles": {"a": {"model": 5}}}', ':1:21: profiles.a.model should be a text such as "deepseek"'),
        (
            '{"profiles": {"a": {"permissions": [{"action": "alow"}]}}}',
            ":1:38: profiles.a.permissions[0].action should be 'allow', 'ask' or 'deny'.",
        ),
        (
            '{"profiles": {"a": {"approvals": {"via_tool": "yes"}}}}',
            ":1:35: profiles.a.approvals.via_tool should be 'on' or 'off'.",
        ),
        ('{"profiles": {"a": {}', ":1:22: "),
        ('{"profiles": {"a\\u202eb": {}}}', "this is not a valid name of a profile."),
        ('{"profiles": {" ": {}}}', "this is not a valid name of a profile."),
        ("[]", ":1:1: expected an object"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(read, text, said):
    with pytest.raises(ConfigError) as raised:
        read(text)
    assert said in raised.value.message
    assert "agent.json:" in raised.value.message


def test_a_key_in_the_file_is_refused_and_not_repeated(read):
    with pytest.raises(ConfigError) as raised:
        read('{"profiles": {"a": {"model": {"provider": "deepseek", "api_key": "sk-0123456789abcdef"}}}}')
    assert "env:NAME" in str(raised.value)
    assert "0123456789" not in str(raised.value)


def test_a_profile_that_is_not_there_names_the_nearest(read):
    with pytest.raises(NotFoundError) as raised:
        read(FULL).profile("研究所")
    assert raised.value.advice == "Did you mean '研究'? There are: 研究, default."


def test_bytes_that_are_no_text_are_no_configuration(tmp_path):
    path = tmp_path / "agent.json"
    path.write_bytes(b"\xff\xfe{}")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        read_agent_file(path)


async def _schedulers(settings, home, text):
    """Return the file, and the schedulers of the agents of its profiles."""
    (home / "agent.json").write_text(text, encoding="utf-8")
    file = read_agent_file(home / "agent.json", provider="mock")
    agents = Agents(settings(), Journal())
    async with anyio.create_task_group() as tasks:
        agents.work_in(tasks)
        made = [(await agents.get(file, name)).agent.scheduler for name in file.profiles]
        await agents.close()
        tasks.cancel_scope.cancel()
    return file, made


@pytest.mark.parametrize("profiles", ["", '"profiles": {"研究": {"priority": 5}, "default": {}},'])
async def test_how_many_calls_run_and_how_long_is_said_for_all_profiles(profiles, settings, home):
    shared = '"scheduler": {"max_concurrency": 3, "max_total": 7, "timeout_seconds": 300, "tools": {"*": 9}}'
    file, made = await _schedulers(settings, home, f"{{{profiles} {shared}}}")
    assert {each.timeout_seconds for each in made} == {300}
    async with made[0].slot("a run"):
        assert {each.snapshot().running for each in made} == {1}  # they share their slots
    assert file.scheduler.model_dump() == {
        "max_concurrency": 3,
        "max_total": 7,
        "timeout_seconds": 300.0,
        "tools": {"*": 9.0},
    }


async def test_a_profile_has_its_own_limits_for_calls(settings, home):
    text = """{"scheduler": {"tools": {"slow": 900, "*": 60}}, "profiles": {
        "a": {"call_limits": {"max_concurrency": 1, "timeout_seconds": 5, "tools": {"slow": 30}}},
        "both": {"parallel": ["a", "b"], "call_limits": {"max_concurrency": 1}},
        "b": {}}}"""
    _, (limited, both, usual) = await _schedulers(settings, home, text)
    slow, quick = Doing("slow"), Doing("quick")
    assert [each.timeout_of(slow) for each in (limited, both, usual)] == [30, 900, 900]
    assert [each.timeout_of(quick) for each in (limited, both, usual)] == [60, 60, 60]
    assert [each.timeout_seconds for each in (limited, both, usual)] == [5, 120, 120]


@pytest.mark.parametrize("wrong", ['{"max_concurrency": 0}', '{"tools": {"re:(": 1}}', '{"tools": {"x": 0}}'])
def test_limits_of_calls_that_cannot_be_are_refused_with_their_place(read, wrong):
    with pytest.raises(ConfigError, match=r"agent\.json:1:\d+: profiles\.a\.call_limits"):
        read(f'{{"profiles": {{"a": {{"call_limits": {wrong}}}}}}}')


@pytest.mark.parametrize("wrong", ['{"max_total": 0}', '{"timeout_seconds": -1}', '{"max": 3}'])
def test_a_scheduler_that_cannot_be_is_refused_with_its_place(read, wrong):
    with pytest.raises(ConfigError, match=r"agent\.json:1:\d+: scheduler\."):
        read(f'{{"scheduler": {wrong}}}')


async def test_a_profile_says_how_often_calls_are_repeated(settings, home):
    text = (
        '{"profiles": {"default": {"tool_retries": {"retries": 3, "cap": 4, "tools": {"git*": 5}}}, "b": {}}}'
    )
    (home / "agent.json").write_text(text, encoding="utf-8")
    file = read_agent_file(home / "agent.json", provider="mock")
    agents = Agents(settings(), Journal())
    async with anyio.create_task_group() as tasks:
        agents.work_in(tasks)
        given, usual = [(await agents.get(file, name)).agent.parts.retries for name in file.profiles]
        await agents.close()
        tasks.cancel_scope.cancel()
    assert given == ToolRetries(retries=3, cap=4.0, tools={"git*": 5})
    assert usual == ToolRetries()


@pytest.mark.parametrize("wrong", ['{"retries": -1}', '{"tools": {"re:(": 1}}', '{"tools": {"x": 1.5}}'])
def test_retries_that_cannot_be_are_refused_with_their_place(read, wrong):
    with pytest.raises(ConfigError, match=r"agent\.json:1:\d+: profiles\.a\.tool_retries"):
        read(f'{{"profiles": {{"a": {{"tool_retries": {wrong}}}}}}}')
