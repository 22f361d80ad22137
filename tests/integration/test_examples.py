"""The programs in examples/ do what they say, with the vendors' own SDKs and strict vendors."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from loom_core.errors import NotFoundError
from loom_core.llm.factory import create_provider
from loom_core.llm.fallback import FallbackProvider
from loom_core.llm.hosted.providers import AnthropicProvider, CustomProvider, DeepSeekProvider, OpenAIProvider
from tests.fixtures.vendors import Call, FakeVendors, Turn

if TYPE_CHECKING:
    from types import ModuleType

    from loom_core.llm.hosted.providers import ProviderOptions

_EXAMPLES = Path(__file__).parents[2] / "examples"


def _example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, _EXAMPLES / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # where Pydantic looks for the names of annotations
    spec.loader.exec_module(module)
    return module


def _at(fake: FakeVendors, vendor: str) -> ProviderOptions:
    return {"base_url": fake.base_url(vendor), "api_key": fake.key}


async def test_deepseek_gets_its_thinking_back_with_the_result_of_the_tool(capsys):
    fake = FakeVendors(
        [
            Turn(reasoning="先查天气。", calls=(Call("forecast", {"city": "上海"}),)),
            Turn(reasoning="不下雨。", text="适合。"),
        ]
    )
    async with fake.http_client() as http_client:
        model = DeepSeekProvider(
            base_url=fake.base_url("deepseek"), api_key=fake.key, http_client=http_client
        )
        async with model:
            assert await _example("deepseek_tools").answer(model, "上海明天适合跑步吗？") == "适合。"
    _, assistant, tool = fake.requests[1].body["messages"]
    assert assistant["reasoning_content"] == "先查天气。"
    assert tool["content"].startswith("上海: 18 °C")
    assert "→ forecast" in capsys.readouterr().err


async def test_claude_is_shown_as_it_writes(capsys):
    fake = FakeVendors([Turn(reasoning="Rayleigh scattering.", text="因为空气散射蓝光。")])
    async with fake.http_client() as http_client:
        model = AnthropicProvider(
            base_url=fake.base_url("anthropic"), api_key=fake.key, http_client=http_client
        )
        async with model:
            await _example("anthropic_stream").show(model, "Why is the sky blue?")
    shown = capsys.readouterr()
    assert shown.out == "因为空气散射蓝光。"
    assert shown.err.startswith("Rayleigh scattering.\nUsage(input_tokens=")


async def test_tasks_are_read_out_of_minutes_by_their_schema():
    tasks = {
        "tasks": [
            {"who": "王芳", "what": "更新文档", "due": "周五前"},
            {"who": "Tom", "what": "tests", "due": None},
        ]
    }
    fake = FakeVendors([Turn(text=json.dumps(tasks, ensure_ascii=False))])
    example = _example("openai_structured")
    async with fake.http_client() as http_client:
        model = OpenAIProvider(**_at(fake, "openai"), http_client=http_client)
        async with model:
            found = await example.tasks_in(model, example.MINUTES)
    assert [(task.who, task.due) for task in found.value.tasks] == [("王芳", "周五前"), ("Tom", None)]
    assert fake.requests[0].body["response_format"]["type"] == "json_schema"


def test_the_custom_vendor_is_made_from_its_file_with_another_behind_it(monkeypatch):
    monkeypatch.setenv("ACME_API_KEY", "acme-key-of-no-value")
    model = create_provider(json.loads((_EXAMPLES / "custom_vendor.json").read_text(encoding="utf-8")))
    assert isinstance(model, FallbackProvider)
    assert [provider.model for provider in model.providers] == ["acme-large", "qwen3:4b"]
    acme = model.providers[0]
    assert isinstance(acme, CustomProvider)
    assert (acme.spec.title, acme.spec.replay, acme.spec.json_mode) == ("Acme", "same_turn", "json_schema")


_LISTED = _EXAMPLES.parent / "tests" / "unit" / "mcp_client" / "listed_server.py"


@pytest.fixture
def files_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A home whose mcp.json names `files`, a server with the tool `read_file`, which is `server.py` there."""
    read = {"name": "read_file", "description": "读文件\nReads.", "inputSchema": {"type": "object"}}
    (tmp_path / "says.json").write_text(json.dumps({"tools": [read]}))
    run = f"runpy.run_path({str(_LISTED)!r}, run_name='__main__')"
    (tmp_path / "server.py").write_text(f"import runpy, sys; sys.argv = ['', 'says.json']; {run}")
    entry = {"command": sys.executable, "args": ["server.py"], "cwd": str(tmp_path)}
    entries = {"files": entry, "坏": {"command": "no-such-program"}}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": entries}))
    monkeypatch.setenv("LOOM_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    return tmp_path


async def test_the_tools_of_mcp_json_are_shown_and_called(files_server: Path, capsys):
    example = _example("mcp_tools")
    assert await example.main([]) == 0
    shown = capsys.readouterr()
    assert shown.out == "files:read_file  读文件\n"
    assert "坏 is failed: Server '坏' cannot be started" in shown.err

    assert await example.main(["files:read_file", '{"path": "说明.md"}']) == 0
    assert '"path": "说明.md"' in capsys.readouterr().out
    with pytest.raises(NotFoundError, match="There is no tool 'files:write'"):
        await example.main(["files:write"])


@pytest.mark.parametrize(
    ("example", "advice"),
    [
        ("deepseek_tools", "DEEPSEEK_API_KEY"),
        ("anthropic_stream", "ANTHROPIC_API_KEY"),
        ("openai_structured", "OPENAI_API_KEY"),
        ("custom_vendor", "ACME_API_KEY"),
    ],
)
def test_an_example_without_a_key_says_which_one_it_needs(example: str, advice: str):
    environment = {name: value for name, value in os.environ.items() if not name.endswith("_API_KEY")}
    run = subprocess.run(
        [sys.executable, _EXAMPLES / f"{example}.py"],
        env={**environment, "PYTHON_KEYRING_BACKEND": "keyring.backends.null.Keyring"},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 1
    assert advice in run.stderr
    assert "Traceback" not in run.stderr


async def test_without_servers_it_says_where_they_belong(tmp_path: Path, monkeypatch, capsys):
    monkeypatch.setenv("LOOM_HOME", str(tmp_path))
    assert await _example("mcp_tools").main([]) == 1
    assert capsys.readouterr().err.startswith(f"No server stands in {tmp_path / 'mcp.json'}")


async def test_the_parts_of_the_flow_server_work_in_a_program(monkeypatch, capsys):
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    example = _example("flow_program")
    await example.main(example.MESSAGES)
    said = capsys.readouterr().out
    parts, conversation = said.split("> 我要请三天假", 1)
    assert parts.startswith("router: leave_request\nknowledge: ['每年有 12 天年假。']\n")
    assert 'flow: completed {"done": "leave_request", "days": 3}' in parts
    assert "tools: ['save_customer']" in parts
    assert "- **leave_request** (请假申请): Requests leave for an employee." in parts
    assert 'system: {"saved": {"phone": "13800138000"}}' in parts
    assert '{"done": "leave_request", "days": 3}  (flow, rules)' in conversation
    assert "每年有 12 天年假。" in conversation


async def test_a_flow_offers_the_times_of_an_api_again_after_a_conflict(capsys):
    example = _example("flow_slots")
    await example.main(example.MESSAGES)
    said = capsys.readouterr().out
    assert "That time has just been taken. Which time would you like?\n1. 9:30\n2. 11:00\n3. 16:30\n" in said
    assert said.endswith("> the second one\nBooked: 11:00.\n")


async def test_the_first_agent_counts_words(tmp_path, monkeypatch, capsys):
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.chdir(tmp_path)
    await _example("agent_quickstart").main("Which is longer?")
    shown = capsys.readouterr()
    assert shown.out == "README.md is the longer one.\n"
    assert shown.err == "completed after 2 turns\n"
    assert re.fullmatch(r"README.md: \d+ words", _example("agent_quickstart").count_words("README.md"))


@pytest.mark.parametrize(("said", "paid"), [("y", True), ("n", False)])
async def test_the_team_hands_over_and_pays_back_what_a_person_approves(said, paid, monkeypatch, capsys):
    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    asked: list[str] = []

    def answered(question: str) -> str:
        asked.append(question)
        return said

    monkeypatch.setattr("builtins.input", answered)
    example = _example("agent_team")
    await example.main("我想退掉订单 42")
    said_last = "You get your money back within three days." if paid else "I may not pay that back."
    assert capsys.readouterr().out == f"{said_last}\n"
    assert len(asked) == 1
    assert asked[0].startswith("pay_back {'number': 42, 'amount': 39.9}")
    assert example.pay_back(42, 39.9) == "39.90 are on their way, for order 42."
    team = example.desk()
    result = await team.run("我想退掉订单 42")
    events = await team.journal.events(result.runs[-1].run_id)
    told = [each.payload["status"] for each in events if each.type == "tool_result"]
    assert told == ["success", "success" if paid else "denied"]


async def test_the_team_pays_nothing_back_where_no_one_can_be_asked(monkeypatch, capsys):
    def end_of_input(_: str) -> str:
        raise EOFError

    monkeypatch.delenv("DEEPSEEK_API_KEY", raising=False)
    monkeypatch.setattr("builtins.input", end_of_input)
    await _example("agent_team").main("我想退掉订单 42")
    shown = capsys.readouterr()
    assert shown.out == "I may not pay that back.\n"
    assert "There is no one here to approve it." in shown.err


async def test_the_agent_of_a_server_answers_from_files_and_does_nothing_twice(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("LOOM_HOME", str(tmp_path / "home"))
    folder = tmp_path / "文档"
    folder.mkdir()
    (folder / "决定.md").write_text("# 决定 12\n我们选择了 Kùzu 作为图数据库。\n", encoding="utf-8")
    example, question = _example("agent_mcp"), "我们选择了什么图数据库？"
    model = example.script(folder, question)
    assert "我们选择了 Kùzu" in await example.answer(model, folder, question)
    assert capsys.readouterr().err == "→ kb:add\n→ kb:query\n"
    asked = len(model.calls)
    assert "我们选择了 Kùzu" in await example.answer(model, folder, question)
    assert len(model.calls) == asked == 3


@pytest.mark.parametrize(
    ("example", "shown"),
    [
        ("agents_as_tools", "图书馆九点开门。\nLa bibliothèque ouvre à neuf heures.\n"),
        (
            "bank_support",
            "> 我的卡丢了！\n李娜，您的卡已冻结，新卡三天内寄到。 (risk 9)\nblocked cards: C-7\n",
        ),
        ("judge_loop", "→ revise 太普通，写出旧书的温度。\n2. 旧书新读，老友重逢。 → pass\n"),
        ("plan_and_execute", "plan: Find the price of a lunch box\n"),
        ("sql_query", "杭州 2\n成都 1\n"),
        (
            "story",
            "check (done): is_for_children=False reason='这是报告，不是故事。'\nstory (skipped): None\n",
        ),
        ("time_travel", "fork at 2: 去植物园野餐。\noriginal: 去自然博物馆。\n"),
        ("user_memory", "→ Kung pao chicken with peanuts.\n李明: ['我对花生过敏']\n"),
        ("weather", "forecast: attempt 2 of 3\nforecast: 24 °C, light rain\n"),
    ],
)
def test_an_agent_of_the_examples_does_what_its_page_says(example: str, shown: str, monkeypatch, capsys):
    monkeypatch.delenv("LOOM_EXAMPLE_MODEL", raising=False)
    program = _EXAMPLES / "agents" / f"{example}.py"
    monkeypatch.setattr(sys, "argv", [str(program)])
    runpy.run_path(str(program), run_name="__main__")
    assert shown in capsys.readouterr().out


def test_the_readme_of_the_agents_names_every_program():
    folder = _EXAMPLES / "agents"
    named = set(re.findall(r"\]\((\w+\.py)\)", (folder / "README.md").read_text(encoding="utf-8")))
    assert named == {path.name for path in folder.glob("*.py")}


_FEATURES = _example("comparison/features")


@pytest.mark.parametrize("feature", [name for name in _FEATURES.FEATURES if name != "durable"])
async def test_a_feature_of_the_comparison_ends_as_in_other_frameworks(feature: str, tmp_path: Path):
    example = _example("comparison/with_loom")
    with _example("comparison/scripted_model").serve() as address:
        async with example.connect(address) as model:
            outcome = await getattr(example, feature)(model, tmp_path)
    assert outcome == _FEATURES.FEATURES[feature].outcome


def test_the_run_of_the_comparison_survives_a_kill(tmp_path: Path):
    program = _EXAMPLES / "comparison" / "compare.py"
    with _example("comparison/scripted_model").serve() as address:
        command = [sys.executable, program, "run", "with_loom", "durable", address, tmp_path]
        killed, resumed = (
            subprocess.run(command, capture_output=True, text=True, timeout=60, check=False) for _ in range(2)
        )
    assert killed.returncode == -signal.SIGKILL
    assert json.loads(resumed.stdout) == _FEATURES.FEATURES["durable"].outcome
