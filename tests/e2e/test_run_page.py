"""The page of runs in a browser: made by the command line of runs that really took place."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Literal

import pytest

from loom_core.agent.agent import Agent
from loom_core.agent.teams.agent_tool import AgentTool
from loom_core.flow.config import parse_flow_file
from loom_core.flow.diagram.drawing import draw_run
from loom_core.flow.executor import FlowExecutor
from loom_core.flow.http import EndpointCaller
from loom_core.llm.messages import ToolCallPart
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.runs.events import StreamEvent
from loom_core.runs.journal import Journal
from loom_core.runs.run import Run, RunRequest
from loom_core.server.pages.run_page import Bounds, RunRecord, run_page, runs_page
from loom_core.tools.function_tool import tool
from tests.fixtures.browser import Browser
from tests.fixtures.commands import run_command

_HOSTILE = "</script><img src=x onerror=\"document.title='taken'\"> <!-- 织机 & loom"
_SELECTED = "document.querySelector('.details h3')?.textContent"
_CHOSEN = "document.querySelectorAll('.bar.chosen').length"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """One browser for all tests here."""
    with Browser() as browser:
        yield browser


def _command(home: Path, *arguments: str) -> tuple[int, str]:
    done = run_command("loom_agent", *arguments, "--home", home, "--provider", "mock")
    return done.returncode, done.stdout.decode()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory, browser: Browser) -> Path:
    """A page of a run that is done and of one that waits, made by the command line."""
    assert browser is not None  # where there is none, nothing is run
    home = tmp_path_factory.mktemp("home")
    assert _command(home, "run", f"What time is it? {_HOSTILE}")[0] == 0
    assert _command(home, "run", "记一下：明天去看织机")[0] == 3
    path = home / "runs.html"
    assert _command(home, "runs", "--html", str(path))[0] == 0
    return path


def test_a_list_leads_to_each_run_and_back(browser: Browser, page: Path) -> None:
    with browser.page(page) as shown:
        shown.wait("document.querySelectorAll('tbody tr').length === 2")
        shown.click("#search_runs")
        shown.type("织机")
        shown.type(" 明天")
        shown.wait("document.querySelectorAll('tbody tr').length === 1")
        shown.click("tbody a")
        shown.wait("document.querySelector('.goal')?.textContent === '记一下：明天去看织机'")
        shown.click(".head a")
        shown.wait("document.querySelectorAll('tbody tr').length === 2")


def test_a_run_that_waits_says_so_and_shows_what_it_asks(browser: Browser, page: Path) -> None:
    with browser.page(page) as shown:
        shown.click("tbody tr:nth-child(1) a")
        assert shown.wait("document.querySelector('main .note').textContent").startswith("This run waits")
        assert shown.wait(_SELECTED) == "keep_note"
        assert "明天去看织机" in shown.run("document.querySelector('.details pre').textContent")
        assert shown.run("document.querySelector('.bar.open.kind-people') !== null")
        assert shown.run("document.querySelector('.call.waiting') !== null")


def test_bars_calls_and_keys_choose_what_is_shown_in_full(browser: Browser, page: Path) -> None:
    with browser.page(page) as shown:
        shown.click("tbody tr:nth-child(2) a")
        shown.wait("document.querySelector('.conversation') !== null")
        assert shown.run("document.querySelector('.words').textContent").endswith(_HOSTILE)
        shown.click("button.call")
        assert shown.wait(_SELECTED) == "clock"
        assert shown.run(_CHOSEN) == 1
        shown.click(".lane.kind-model .bar")
        assert shown.wait(f"{_SELECTED} === 'demonstration'")
        assert shown.run("document.activeElement.classList.contains('bar')")
        shown.press("ArrowRight")
        shown.press("Enter")
        assert shown.wait(f"{_SELECTED} === 'clock'")
        kept = shown.run("location.hash")
        shown.press("+")
        shown.press("+")
        assert shown.run("parseFloat(document.querySelector('.inner').style.width)") > 200
        shown.press("0")
        assert shown.run("document.querySelector('.inner').style.width") == "100%"
        shown.run("location.reload()")
        assert shown.wait(f"location.hash === {json.dumps(kept)} && {_SELECTED} === 'clock'")


def test_events_are_filtered_and_searched(browser: Browser, page: Path) -> None:
    with browser.page(page) as shown:
        shown.click("tbody tr:nth-child(2) a")
        whole = shown.wait("document.querySelectorAll('.event').length")
        shown.click(".filter.kind-model")
        shown.wait(f"document.querySelectorAll('.event').length < {whole}")
        assert not shown.run("[...document.querySelectorAll('.type')].some(e => e.textContent === 'usage')")
        shown.click("#search_events")
        shown.type("tool_result")
        shown.wait("document.querySelectorAll('.event').length === 1")
        shown.click(".event summary")
        assert '"call_id"' in shown.wait("document.querySelector('.event pre')?.textContent")
        shown.click("#search_events")
        shown.type(" nothing like that ")
        shown.wait("document.querySelectorAll('.event').length === 0")
        said = shown.run("document.querySelector('.events [role=status]').textContent")
        assert said == "No event is like that."


@pytest.mark.parametrize(
    ("language", "goal", "switch"), [("en-GB", "Goal", "中文"), ("zh-CN", "目标", "English")]
)
def test_words_are_those_of_the_browser_until_they_are_switched(
    browser: Browser, page: Path, language: str, goal: str, switch: str
) -> None:
    with browser.page(page, language=language) as shown:
        head = "document.querySelectorAll('th')[1].textContent"
        assert shown.run(head) == goal
        assert shown.run("document.querySelector('[data-switch=language]').textContent") == switch
        shown.click("[data-switch=language]")
        assert shown.wait(f"{head} !== {json.dumps(goal)} && {head}") in {"Goal", "目标"}
        shown.run("localStorage.clear()")  # the browser keeps what was chosen


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_are_those_of_the_system_until_they_are_switched(
    browser: Browser, page: Path, scheme: Literal["light", "dark"]
) -> None:
    ground = "getComputedStyle(document.body).backgroundColor"
    with browser.page(page, scheme=scheme) as shown:
        before = shown.run(ground)
        assert (before == "rgb(247, 247, 245)") == (scheme == "light")
        shown.click("[data-switch=theme]")
        assert shown.wait(f"{ground} !== {json.dumps(before)}")
        shown.run("localStorage.clear()")


def test_nothing_is_wider_than_a_narrow_window(browser: Browser, page: Path) -> None:
    with browser.page(page, width=380, height=800) as shown:
        shown.click("tbody tr:nth-child(2) a")
        shown.wait("document.querySelector('.timeline') !== null")
        assert shown.run("document.documentElement.scrollWidth") <= 380


async def test_a_child_run_is_nested_and_opened(browser: Browser, tmp_path: Path) -> None:
    @tool(read_only=True, open_world=False)
    def look(place: str) -> str:
        """Look somewhere."""
        return f"{place}: 织机"

    child = Agent(MockProvider([_calling("look", place="成都"), "四台"]), tools=[look], name="研究员")
    helper = AgentTool(child, name="研究员", description="Finds facts.")
    journal = Journal(tmp_path / "runs.db")
    llm = MockProvider([_calling(helper.wire_name, goal="查资料"), "好的。"])
    async with Agent(llm, tools=[helper], name="boss", journal=journal, permissions="allow") as boss:
        await boss.run("有几台织机？")
        path = tmp_path / "page.html"
        runs = [run for run in await journal.runs() if run.request.profile == "boss"]
        path.write_text(await runs_page(journal, runs, program="loom-agent-server"), encoding="utf-8")
    await journal.aclose()
    with browser.page(path) as shown:
        assert shown.wait("document.querySelector('.goal')?.textContent") == "有几台织机？"
        names = "[...document.querySelectorAll('.lane-name')].map(each => each.textContent)"
        assert "↳ 研究员" in shown.run(names)
        shown.click(".lane.kind-child .bar")
        assert shown.wait(_SELECTED) == "研究员"
        shown.click(".details button")
        shown.wait("document.querySelector('.goal')?.textContent === '查资料'")
        assert shown.run("document.querySelector('.call .mono').textContent") == "look"
        shown.click(".head a")
        shown.wait("document.querySelector('.goal')?.textContent === '有几台织机？'")


async def test_the_flow_of_a_run_is_drawn_with_its_path(browser: Browser, tmp_path: Path) -> None:
    items = {"in": ["一", "二"], "steps": [{"stepId": "check", "successCriteria": ["$item == '一'"]}]}
    steps = [
        {"stepId": "each", "for_each": items, "onFailure": [{"type": "goto", "stepId": "sure"}]},
        {"stepId": "skipped", "say": "x"},
        {"stepId": "sure", "confirm": "可以吗？ / Go on?"},
        {"stepId": "never", "say": "y"},
    ]
    flow = {"flow_id": "f", "name": f"{_HOSTILE} / Trip", "steps": steps}
    loaded = parse_flow_file(json.dumps({"flows": [flow]}))
    journal, caller = Journal(), EndpointCaller(loaded.file)
    run = await FlowExecutor(loaded, caller=caller, journal=journal).execute("f", message="出差")
    path = tmp_path / "run.html"
    draw = partial(draw_run, loaded)
    path.write_text(await runs_page(journal, [run], program="loom-flow-server", draw=draw), encoding="utf-8")
    await caller.aclose()
    await journal.aclose()
    with browser.page(path, width=380, height=800, language="zh-CN") as shown:
        names = "[...document.querySelectorAll('{}')].map((each) => each.querySelector('.name').textContent)"
        assert shown.wait(names.format(".step-card.is-waiting")) == ["sure"]
        assert shown.run(names.format(".step-card.is-unreached")) == ["skipped", "never"]
        assert shown.run("document.querySelector('.badge').textContent") == "2 项，1 项失败"
        taken = "document.querySelectorAll('g.taken').length"
        assert shown.run(f"[{taken}, document.querySelectorAll('g').length]") == [6, 11]
        shown.click(".is-failed")  # of the items, the one that has failed
        assert shown.wait(_SELECTED) == "each/1/check"
        assert shown.run("document.querySelector('.step-card.chosen .name').textContent") == "check"
        assert shown.run("document.querySelector('.is-waiting .card-text').textContent") == "可以吗？"
        assert shown.run("document.documentElement.scrollWidth") <= 380


async def test_a_fork_is_compared_with_its_original(browser: Browser, tmp_path: Path) -> None:
    @tool(read_only=True, open_world=False)
    def look(place: str) -> str:
        """Look somewhere."""
        return f"{place}: 四台织机"

    journal = Journal(tmp_path / "runs.db")
    llm = MockProvider([_calling("look", place="成都"), "有四台。", "有五台。"])
    async with Agent(llm, tools=[look], journal=journal) as agent:
        first = await agent.run("有几台织机？")
        fork = await agent.fork(first.run_id, at=2, outcome="成都: 五台织机")
        path = tmp_path / "page.html"
        path.write_text(await runs_page(journal, await journal.runs(), program="p"), encoding="utf-8")
    with browser.page(path) as shown:
        shown.run(f"location.hash = '#{fork.run_id}'")
        shown.wait("document.querySelector('select.compare') !== null")
        assert first.run_id in shown.run("document.querySelector('.totals a').textContent")
        shown.run("document.querySelector('select.compare').selectedIndex = 1")
        shown.run("document.querySelector('select.compare').dispatchEvent(new Event('change'))")
        shown.wait("document.querySelectorAll('.pair').length === 3")
        assert shown.run("document.querySelectorAll('.pair.same').length") == 1
        marks = "[...document.querySelectorAll('mark')].map(each => each.textContent).join('')"
        assert shown.run(marks) == "五四五四"
        assert shown.run("location.hash") == f"#{fork.run_id}~{first.run_id}"


def _calling(name: str, **arguments: object) -> MockAnswer:
    return MockAnswer(calls=(ToolCallPart("c1", name, arguments),))


def _page_of(path: Path, happened: list[tuple[str, dict[str, object]]], *, goal: str) -> Path:
    """A page of one run, of which these events are all."""
    events = [
        StreamEvent(type_, payload, run_id="run_a", seq=seq, at=float(seq))  # pyright: ignore[reportArgumentType]
        for seq, (type_, payload) in enumerate(happened, start=1)
    ]
    run = Run(
        id="run_a",
        request=RunRequest(goal=goal, session_id="s"),
        status="completed",
        created=0.0,
        updated=float(len(events)),
        last_seq=len(events),
    )
    record = RunRecord(run=run, events=events)
    page = run_page([record], now=99.0, program="loom-agent-server", bounds=Bounds())
    path.write_text(page, encoding="utf-8")
    return path


@pytest.fixture(scope="module")
def asked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page of a run with an approval that was given, and two questions that were answered."""
    call = {"call_id": "c1", "tool": "remove_note"}
    approval = {
        "id": "c1", "kind": "approval", "tool": "remove_note", "arguments": {"name": "旧笔记"},
        "reason": "It may remove or overwrite something.",
    }  # fmt: skip
    questions = [{"id": f"q{n}", "kind": "question", "tool": "ask", "reason": "Which?"} for n in range(2)]
    happened: list[tuple[str, dict[str, object]]] = [
        ("request_start", {"goal": "g"}),
        ("model_start", {"iteration": 1, "model": "mock"}),
        ("tool_calls_start", {"calls": [{**call, "arguments": {"name": "旧笔记"}}]}),
        ("approval_required", {"pending": approval}),
        (
            "approval_decided",
            {"call_id": "c1", "action": "approve", "by": "ada", "reason": "", "scope": "once"},
        ),
        ("tool_start", call),
        ("tool_result", {**call, "status": "ok", "text": "It is gone."}),
    ]
    for question in questions:
        happened.append(("approval_required", {"pending": question}))
        happened.append(("approval_decided", {"call_id": question["id"], "action": "accept", "by": "ada"}))
    happened.append(("agent_finish", {"output": "好的。", "structured": None}))
    path = tmp_path_factory.mktemp("asked") / "run.html"
    return _page_of(path, happened, goal="𝒰" * 200)


def test_a_call_stands_where_it_was_made_behind_what_people_said_of_it(browser: Browser, asked: Path) -> None:
    with browser.page(asked) as shown:
        keys = "[...document.querySelectorAll('.call')].map((each) => each.dataset.key)"
        assert shown.wait(keys) == ["people:c1", "tool:c1", "people:q0", "people:q1"]
        texts = shown.run("[...document.querySelectorAll('.call')].map((each) => each.textContent)")
        assert "旧笔记" in texts[0]
        assert "It is gone." not in texts[0]
        assert "It is gone." in texts[1]


def test_answers_are_not_counted_as_approvals(browser: Browser, asked: Path) -> None:
    with browser.page(asked) as shown:
        facts = shown.wait("[...document.querySelectorAll('.fact')].map((each) => each.textContent)")
        assert "Approvals1 of 1 approved" in facts
        assert "Questions2 of 2 answered" in facts


def test_what_loom_says_itself_is_said_in_the_language_of_the_page(browser: Browser, asked: Path) -> None:
    with browser.page(asked, language="zh-CN") as shown:
        assert "它可能会删除或覆盖某些内容。" in shown.wait("document.querySelector('.call').textContent")
        shown.click(".call")
        details = shown.wait(
            "document.querySelector('.details .chip') && document.querySelector('.details').innerText"
        )
        assert "It may" not in details
        assert details.count("决定") == 1
        assert "审批" in shown.run("document.querySelector('.facts-row').innerText")


def test_no_character_is_cut_in_half(browser: Browser, asked: Path) -> None:
    with browser.page(asked) as shown:
        assert shown.wait("document.title").startswith("𝒰" * 30 + "…")
        assert shown.run("document.title.isWellFormed()")
        assert shown.run("[1, 2, 3, 4].map((n) => Page.beginning('a𝒰b', n)).join()") == "a,a,a𝒰,a𝒰b"
        assert shown.run("Page.shortened('ab', 2) + Page.shortened('abc', 2)") == "abab…"
