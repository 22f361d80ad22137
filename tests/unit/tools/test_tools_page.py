"""The snippets of docs/tools.md run as they stand."""

from __future__ import annotations

import re
import sys
import textwrap
from pathlib import Path
from typing import Any

from loom_core import plugins
from loom_core.llm.interface import ChatRequest
from loom_core.llm.messages import ToolCallPart, ToolMessage
from loom_core.llm.mock import MockAnswer, MockProvider
from loom_core.tools.builtin import BuiltinToolsConfig
from loom_core.tools.function_tool import tool

_PAGE = Path(__file__).parents[3] / "docs" / "tools.md"
_SNIPPET = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_KEYWORD = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


def _answer(request: ChatRequest) -> str | MockAnswer:
    if any(isinstance(message, ToolMessage) for message in request.messages):
        return "还有十一天。"
    return MockAnswer(calls=(ToolCallPart("c", "days_of_leave", {"employee": "王小明"}),))


async def test_every_snippet_runs(tmp_path: Path) -> None:
    names: dict[str, Any] = {
        "model": MockProvider(_answer),
        "folder": tmp_path,
        "shell_is_there": sys.platform != "win32",
    }
    snippets = _SNIPPET.findall(_PAGE.read_text(encoding="utf-8"))

    for snippet in snippets:
        body = f"async def run():\n{textwrap.indent(snippet, '    ')}\n    globals().update(locals())\n"
        exec(compile(body, str(_PAGE), "exec"), names)
        await names["run"]()
    await names["agent"].aclose()
    del plugins._registry._factories["tool", "register_of_leave"]

    assert len(snippets) == 5
    assert (names["archive"].name, names["archive"].needs_approval) == ("归档", True)


def test_the_page_names_every_keyword_and_every_tool() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    keywords = set(tool.__kwdefaults__) - {"name", "description"}

    assert keywords <= set(_KEYWORD.findall(text))
    for name in plugins.registered("tool"):
        assert f"`{name}`" in text
    assert set(BuiltinToolsConfig.model_fields) == {"files", "http", "shell"}
