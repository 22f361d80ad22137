"""The snippets of docs/agent.md run as they stand."""

from __future__ import annotations

import re
import textwrap
from pathlib import Path
from typing import Any

from loom_core.agent.agent import Agent
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import ToolCallPart, ToolMessage, UserMessage
from loom_core.llm.mock import MockAnswer, MockProvider

_PAGE = Path(__file__).parents[3] / "docs" / "agent.md"
_SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def _answer(request: ChatRequest) -> str | MockAnswer:
    """What a model would do: look up the days of leave, or have others do so, and then say them."""
    asked = max(at for at, message in enumerate(request.messages) if isinstance(message, UserMessage))
    question = request.messages[asked].text
    results = [each.text for each in request.messages[asked:] if isinstance(each, ToolMessage)]
    if request.output is not None:
        return '{"days": 28}'
    if results:
        return f"{results[-1].removesuffix(' 天。')} 天。"
    years = 5 if question.startswith("五年") else 3
    calls = {
        "leave_days": {"years": years},
        "people": {"goal": "三年后有多少天年假？"},
        "handoff_to_people": {"note": ""},
    }
    there = {tool.name for tool in request.tools}
    for name, arguments in calls.items():
        if name in there:
            return MockAnswer(calls=(ToolCallPart("c", name, arguments),))
    return f"{request.messages[-1].text}（此致）"


async def test_every_snippet_runs(tmp_path: Path):
    said: list[tuple[object, ...]] = []
    names: dict[str, Any] = {
        "model": MockProvider(_answer),
        "small_model": MockProvider([]),
        "folder": tmp_path,
        "is_weekend": lambda: False,
        "print": lambda *values: said.append(values),
    }
    snippets = _SNIPPET.findall(_PAGE.read_text(encoding="utf-8"))

    for snippet in snippets:
        body = f"async def run():\n{textwrap.indent(snippet, '    ')}\n    globals().update(locals())\n"
        exec(compile(body, str(_PAGE), "exec"), names)
        await names["run"]()
        agent = names.pop("agent", None)
        if agent is not None:
            assert isinstance(agent, Agent)
            answer = await agent.run("工作三年后有多少天年假？")
            assert answer.or_raise().output == "28 天。"
            await agent.aclose()

    assert len(snippets) == 13
    assert names["found"][0].id == names["same"].run_id
    assert [hit.message.text for hit in names["hits"]] == ["工作三年后有多少天年假？"]
    assert [" ".join(map(str, values)).partition(" Usage(")[0] for values in said] == [
        "28 天。",
        "30 天。",
        "leave_days success 28",
        '{"资料":"28 天。","地址":{"to":"小王"}}（此致） 28 天。',
        "28 天。",
    ]
    assert names["answer"].output == "30 天。"
    assert [step.step for step in names["answer"].steps] == ["1 people"]
