from __future__ import annotations

import pytest

PAGE = """\
:orphan:

.. _harbour:

============
The *Harbour*
============

:Author: Ada Oneil
:Date: 2026-11-24

Salt from the :ref:`coast <coast>` and grain, see `the
list <https://example.com/list>`_ and harbours_. Use ``a_ * b`` or :func:`~tide.gauge.read`.

港口
====

.. note:: 潮汐每小时
   测量一次。

   More text.

.. code-block:: python
   :linenos:

   read_gauge(1)

.. image:: map.png
   :alt: map

Example::

    $ tide --now

.. toctree::
   :maxdepth: 2

   one
   two

.. a comment
   of two lines

Details
-------

.. versionadded:: 3.2
   The gauge.

.. _coast: https://example.com
"""


def test_a_page_of_documentation(load, outline) -> None:
    draft = load("a.rst", PAGE)
    assert outline(draft) == [
        ("heading", "The Harbour"),
        ("list", "Author: Ada Oneil"),
        ("list", "Date: 2026-11-24"),
        (
            "paragraph",
            "Salt from the coast and grain, see the list and harbours. Use a_ * b or read.",
        ),
        ("heading", "港口"),
        ("paragraph", "Note: 潮汐每小时测量一次。"),
        ("paragraph", "More text."),
        ("code", "read_gauge(1)"),
        ("paragraph", "Example:"),
        ("code", "$ tide --now"),
        ("heading", "Details"),
        ("paragraph", "New in version 3.2: The gauge."),
    ]
    assert draft.blocks[-1].path == ("The Harbour", "港口", "Details")
    assert (draft.title, draft.title_source) == ("The Harbour", "heading")
    assert draft.metadata == {"author": "Ada Oneil", "date": "2026-11-24"}
    assert draft.mime == "text/x-rst"


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (":class:`!Gauge` and :meth:`.read`", "Gauge and .read"),
        (":pep:`8`, :rfc:`2822`, :kbd:`Ctrl+C`", "PEP 8, RFC 2822, Ctrl+C"),
        ("`text`_, `text`__, _`target`", "text, text, target"),
        ("**bold**, *em*, ``x``\\ s, a\\*b", "bold, em, xs, a*b"),
        ("2 * 3 * 4, snake_case, __init__, *args", "2 * 3 * 4, snake_case, __init__, *args"),
        ("See [1]_ and [#]_, [CIT2002]_.", "See [1] and , [CIT2002]."),
        ("The |product| and |unknown|\n\n.. |product| replace:: **Loom** 织机", "The Loom 织机 and unknown"),
        ("他说\\ **很好**\\ 。", "他说很好。"),
        (":math:`x^2` `plain`", "x^2 plain"),
        ("`<https://example.com>`_", "https://example.com"),
    ],
)
def test_inline_markup(load, markup: str, text: str) -> None:
    assert load("a.rst", markup).text == text


def test_levels_are_by_the_order_of_the_adornments(load) -> None:
    draft = load(
        "a.rst", "A\n~\n\nB\n^^^^\n\nC\n****\n\nD\n^^^\n\nE\n~\nText\n\n----\n\n====\nF\n====\n\nText"
    )
    headings = [
        (block.level, draft.text[block.start : block.end])
        for block in draft.blocks
        if block.kind == "heading"
    ]
    assert headings == [(1, "A"), (2, "B"), (3, "C"), (2, "D"), (1, "E"), (4, "F")]


def test_lists(load, outline) -> None:
    text = """\
- salt
  and *pepper*
- grain

  - 黑麦
  - wheat::

      code

#. first
#. second

3) third

term : kind
    What it means.

    1. one

-a, --all  all of them
-o FILE    output

:param tide: the height
| line one
| line two
"""
    assert outline(load("a.rst", text)) == [
        ("list", "- salt and pepper"),
        ("list", "- grain\n  - 黑麦\n  - wheat:"),
        ("code", "code"),
        ("list", "1. first"),
        ("list", "2. second"),
        ("list", "3) third"),
        ("list", "term : kind\n  What it means.\n  1. one"),
        ("list", "-a, --all\n  all of them"),
        ("list", "-o FILE\n  output"),
        ("list", "param tide: the height"),
        ("paragraph", "line one\nline two"),
    ]


SIMPLE = """\
=====  ======
Ship   吨位
=====  ======
Ada    ``420``
Bo     700
       (new)
=====  ======
"""
GRID = """\
+------+--------+
| Ship | 吨位   |
+======+========+
| Ada  | 420    |
+------+--------+
| Bo   | 700    |
|      | (new)  |
+------+--------+
"""
CSV = '.. csv-table:: Ships\n   :header: "Ship", "吨位"\n\n   Ada, 420\n   Bo, "700 (new)"\n'
LIST = """\
.. list-table::
   :header-rows: 1

   * - Ship
     - 吨位
   * - Ada
     - 420
   * - Bo
     - 700
       (new)
"""


@pytest.mark.parametrize("table", [SIMPLE, GRID, CSV, LIST], ids=["simple", "grid", "csv", "list"])
def test_tables(load, outline, table: str) -> None:
    rows = [text for kind, text in outline(load("a.rst", f"Text\n\n{table}\nEnd")) if kind == "row"]
    assert rows == ["Ship: Ada; 吨位: 420", "Ship: Bo; 吨位: 700 (new)"]


def test_directives(load, outline) -> None:
    text = """\
.. py:function:: read(gauge)
                 read(all)
   :module: tide

   Reads the *gauge*.

   :returns: its height

.. warning::

   Not at night.

.. admonition:: Remember this

   Text

.. figure:: map.png
   :width: 100

   The caption.

.. raw:: html

   <b>no</b>

.. math:: x^2_1

.. |logo| image:: logo.png
.. [1] A footnote.
.. class:: small

..

   A quote.

__ https://example.com
"""
    assert outline(load("a.rst", text)) == [
        ("list", "read(gauge)\nread(all)\n  Reads the gauge.\n  returns: its height"),
        ("paragraph", "Warning: Not at night."),
        ("paragraph", "Remember this"),
        ("paragraph", "Text"),
        ("paragraph", "The caption."),
        ("paragraph", "x^2_1"),
        ("paragraph", "[1] A footnote."),
        ("paragraph", "A quote."),
    ]


@pytest.mark.hostile("files of any kind")
@pytest.mark.parametrize(
    "text",
    [
        "".join(f"{' ' * depth}- x\n" for depth in range(2_000)),
        "`" * 200_000,
        "**a " * 50_000,
        "|a " * 50_000,
        "== ==\nx\n\n" * 20_000,
        "a." * 100_000 + "_",
        ":a" * 100_000,
        "+-+\n| |\n" * 20_000,
        ".. note:: " * 20_000,
        "-a, " * 50_000,
        ".. |a| replace:: |a| |a|\n\n|a|",
    ],
    ids=range(11),
)
def test_hostile_markup_takes_no_time(load, text: str) -> None:
    load("a.rst", f"{text}\n\nend")
