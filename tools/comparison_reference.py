"""Writes the code of docs/howto/other-frameworks.md, from the functions of examples/comparison.

python -m tools.reference comparison
"""

from __future__ import annotations

import runpy
from pathlib import Path
from typing import Any

from tools.marked_block import with_block

_ROOT = Path(__file__).parents[1]
_EXAMPLES = _ROOT / "examples" / "comparison" / "features.py"

PAGE = _ROOT / "docs" / "howto" / "other-frameworks.md"


def page() -> str:
    """Return the text of the page."""
    code = runpy.run_path(str(_EXAMPLES))
    features: dict[str, Any] = code["FEATURES"]
    modules: dict[str, str] = code["MODULES"]
    examples = {title: code["read_examples"](module) for title, module in modules.items()}
    rows = [f"| | {' | '.join(modules)} |", f"|{'---|' * (1 + len(modules))}"]
    sections: list[str] = []
    for name, feature in features.items():
        shown = {title: each[name] for title, each in examples.items() if name in each}
        cells = [str(shown[title].lines) if title in shown else "–" for title in modules]
        rows.append(f"| {feature.title} | {' | '.join(cells)} |")
        sections.append(f"## {feature.title}\n")
        sections += (_section(title, each.code) for title, each in shown.items())
    text = with_block(PAGE.read_text(encoding="utf-8"), "lines of code", "\n".join(rows))
    return with_block(text, "code", "\n".join(sections))


def _section(title: str, code: str) -> str:
    """Return the code of a framework; that of the others is folded."""
    shown = f"```py\n{code}\n```\n"
    if title == "Loom":
        return shown
    return f'<details markdown="1"><summary>{title}</summary>\n\n{shown}\n</details>\n'
