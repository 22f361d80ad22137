from __future__ import annotations

import json
from typing import Any

import pytest

from loom_core.errors import DocumentError


def notebook(*cells: dict[str, Any], language: str = "python", **more: Any) -> str:
    metadata = {"kernelspec": {"name": "python3", "language": language}}
    return json.dumps({"cells": cells, "metadata": metadata, "nbformat": 4, "nbformat_minor": 5, **more})


def text(*lines: str) -> dict[str, Any]:
    return {"cell_type": "markdown", "metadata": {}, "source": list(lines)}


def code(source: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "execution_count": 1, "metadata": {}, "source": source, "outputs": outputs}


def printed(text: str) -> dict[str, Any]:
    return {"output_type": "stream", "name": "stdout", "text": text.splitlines(keepends=True)}


def shown(**data: str) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {f"text/{name}": text for name, text in data.items()}}


def test_a_notebook_is_markdown_with_its_code_and_outputs(load, outline) -> None:
    draft = load(
        "a.ipynb",
        notebook(
            text("# 潮汐 `tide` 分析\n", "\n", "The gauge reports *hourly*.\n"),
            code("import pandas as pd\ndf.mean()", printed("4.2\n")),
            text("## Results\n", "- 港口 A\n", "- harbour B"),
            code(
                "1 / 0", {"output_type": "error", "ename": "ZeroDivisionError", "evalue": "division by zero"}
            ),
        ),
    )
    assert outline(draft) == [
        ("heading", "潮汐 `tide` 分析"),
        ("paragraph", "The gauge reports *hourly*."),
        ("code", "```python\nimport pandas as pd\ndf.mean()\n```"),
        ("code", "```\n4.2\n```"),
        ("heading", "Results"),
        ("list", "- 港口 A"),
        ("list", "- harbour B"),
        ("code", "```python\n1 / 0\n```"),
        ("code", "```\nZeroDivisionError: division by zero\n```"),
    ]
    assert draft.text.startswith("# 潮汐 `tide` 分析\n\nThe gauge")
    assert draft.blocks[-1].path == ("潮汐 tide 分析", "Results")
    assert (draft.title, draft.title_source) == ("潮汐 tide 分析", "heading")
    assert draft.mime == "application/x-ipynb+json"


@pytest.mark.parametrize(
    ("cells", "more", "title"),
    [
        ([text("### Small heading\n\nText")], {}, "Small heading"),
        ([text("### Small heading")], {}, "Small heading"),
        ([text("Text"), text("# Later")], {}, "Later"),
        ([text("Text")], {}, "tide tables"),
        ([text("# Text")], {"metadata": {"title": "潮汐表"}}, "潮汐表"),
    ],
)
def test_the_title_is_the_first_heading(load, cells, more, title: str) -> None:
    assert load("tide_tables.ipynb", notebook(*cells, **more)).title == title


def test_outputs_are_short_and_pictures_are_left_out(load) -> None:
    draft = load(
        "a.ipynb",
        notebook(
            text("![plot](data:image/png;base64,iVBORw0KGgo=) before ![x](attachment:x.png)"),
            code("many()", printed("".join(f"line {number}\n" for number in range(1_000)))),
            code("wide()", printed("x" * 100_000)),
            code("plot()", {"output_type": "display_data", "data": {"image/png": "iVBORw0KGgo"}}),
            code("fig", shown(plain="<Figure size 640x480 with 1 Axes>", html="<img>")),
            code("ax", shown(plain="[<matplotlib.lines.Line2D at 0x7f24a8>]")),
            code("bar()", printed("\x1b[31m 10%\r 50%\r100%\x1b[0m\n")),
        ),
    )
    assert "iVBOR" not in draft.text
    assert "matplotlib" not in draft.text
    assert "Axes" not in draft.text
    assert "line 9\n…\n" in draft.text
    assert "line 10" not in draft.text
    assert f"\n{'x' * 200}…\n" in draft.text
    assert "```\n100%\n```" in draft.text


def test_a_cell_that_leaves_its_markup_open_does_not_swallow_the_next(load, outline) -> None:
    draft = load("a.ipynb", notebook(text("```\nopen"), text("# Heading"), code("print('```')")))
    assert outline(draft) == [
        ("code", "```\nopen"),
        ("heading", "Heading"),
        ("code", "````python\nprint('```')\n````"),
    ]


def test_an_older_notebook_with_worksheets(load, outline) -> None:
    cells = [
        {"cell_type": "heading", "level": 2, "source": ["Salt ", "and grain"]},
        {"cell_type": "markdown", "source": "盐的价格"},
        {
            "cell_type": "code",
            "language": "python",
            "input": ["print 1\n", "2"],
            "outputs": [
                {"output_type": "stream", "stream": "stdout", "text": ["1\n"]},
                {"output_type": "pyout", "text": ["2"], "png": "iVBOR"},
                {"output_type": "pyerr", "ename": "KeyError", "evalue": "'salt'", "traceback": []},
            ],
        },
        {"cell_type": "raw", "source": "as it is"},
    ]
    draft = load("a.ipynb", json.dumps({"nbformat": 3, "metadata": {}, "worksheets": [{"cells": cells}]}))
    assert outline(draft) == [
        ("heading", "Salt and grain"),
        ("paragraph", "盐的价格"),
        ("code", "```python\nprint 1\n2\n```"),
        ("code", "```\n1\n```"),
        ("code", "```\n2\n```"),
        ("code", "```\nKeyError: 'salt'\n```"),
        ("code", "```\nas it is\n```"),
    ]
    assert draft.title == "Salt and grain"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        ('{"cells": [', r"as a Jupyter notebook: Expecting value"),
        ("[1, 2]", "it has no cells"),
        ('{"nbformat": 4}', "it has no cells"),
        ("[" * 100_000, "it is nested too deep"),
        ("1" * 10_000, "Exceeds the limit"),
    ],
)
def test_a_broken_notebook_is_refused(load, data: str, reason: str) -> None:
    with pytest.raises(DocumentError, match=reason):
        load("a.ipynb", data)


def test_cells_of_wrong_types_are_passed_over(load) -> None:
    cells: list[Any] = [
        None,
        1,
        {"cell_type": "code", "source": 3, "outputs": [1, {"data": []}]},
        text("Text"),
    ]
    assert load("a.ipynb", notebook(*cells)).text == "Text"
