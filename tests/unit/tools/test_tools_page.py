"""Names that docs/tools.md must mention. (Its blocks are run by tests/docs.)"""

from __future__ import annotations

import re
from pathlib import Path

from loom_core import plugins
from loom_core.tools.builtin import BuiltinToolsConfig
from loom_core.tools.function_tool import tool

_PAGE = Path(__file__).parents[3] / "docs" / "tools.md"
_KEYWORD = re.compile(r"^\| `(\w+)` \|", re.MULTILINE)


def test_the_page_names_every_keyword_and_every_tool() -> None:
    text = _PAGE.read_text(encoding="utf-8")
    keywords = set(tool.__kwdefaults__) - {"name", "description"}

    assert keywords <= set(_KEYWORD.findall(text))
    registered = plugins.list_registered("tool")
    for name in set(registered) - set(plugins.list_registered("tool", built_in=False)):
        assert f"`{name}`" in text
    assert set(BuiltinToolsConfig.model_fields) == {"files", "http", "shell"}
