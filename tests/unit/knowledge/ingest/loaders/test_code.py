from __future__ import annotations

import pytest

PYTHON = '''"""Doc of the module.

def not_this(): inside a string
"""
import os

LIMIT = 3


# Opens things.
@cache
@route(
    "/open",
)
def open_it(path):
    return path
async def close(): ...
VALUE = open_it(1)


class Small:
    def a(self): ...
'''


def units(draft) -> list[tuple[str, str]]:
    return [(block.name, draft.text[block.start : block.end].split("\n")[0]) for block in draft.blocks]


def test_definitions_are_units_with_their_comments_and_decorators(load) -> None:
    draft = load("a.py", PYTHON)
    assert units(draft) == [
        ("", '"""Doc of the module.'),
        ("open_it", "# Opens things."),
        ("close", "async def close(): ..."),
        ("", "VALUE = open_it(1)"),
        ("Small", "class Small:"),
    ]
    assert draft.text == PYTHON
    assert all(block.kind == "code" for block in draft.blocks)


def test_a_large_class_is_cut_into_its_methods(load) -> None:
    body = "        x = 1\n" * 60
    methods = "".join(f"    # About {name}.\n    def {name}(self):\n{body}\n" for name in ("open", "shut"))
    draft = load("a.py", f"class Record(Base):\n    '''Doc.'''\n\n    size = 1\n\n{methods}\nX = 1\n")
    assert [(block.name, block.path) for block in draft.blocks] == [
        ("Record", ()),
        ("Record.open", ("Record",)),
        ("Record.shut", ("Record",)),
        ("", ()),
    ]
    assert units(draft)[1] == ("Record.open", "# About open.")


def test_a_large_class_without_members_stays_whole(load) -> None:
    assert len(load("a.py", "class Record:\n" + "    x = 1\n" * 300).blocks) == 1
    assert len(load("a.py", "class Record:\n" + "# x\n" * 600).blocks) == 1


def test_classes_inside_classes_are_named_in_full(load) -> None:
    body = "            x = 1\n" * 120
    draft = load(
        "a.py", f"class A:\n    class B:\n        def f(self):\n{body}\n        def g(self):\n{body}\n"
    )
    assert [block.name for block in draft.blocks] == ["A", "A.B", "A.B.f", "A.B.g"]
    assert draft.blocks[-1].path == ("A", "B")


@pytest.mark.parametrize(
    ("name", "source", "names"),
    [
        (
            "a.ts",
            "/**\n * Doc\n */\n@sealed\nexport default class Record<T> extends B {\n  open(): void {\n  }\n}",
            ["Record"],
        ),
        (
            "a.ts",
            "export const run = async (x: number) => {\n  return x;\n};\nfunction plain() { return 1; }",
            ["run", "plain"],
        ),
        ("a.js", "if (x) {\n}\nfoo(1);\nfunction* gen() {\n}", ["", "gen"]),
        (
            "a.go",
            "// Doc.\nfunc (r *Record) Open(p string) error {\n\treturn nil\n}\n\ntype Record struct {\n}",
            ["Open", "Record"],
        ),
        (
            "a.c",
            "static int helper(int a,\n        int b)\n{\n    return a;\n}\nstruct point *make(void) {\n}",
            ["helper", "make"],
        ),
        (
            "a.cpp",
            "namespace n {\n}\nvoid Record::open(int a = 0) {\n}\nRecord::~Record() {\n}",
            ["n", "Record.open", "Record.Record"],
        ),
        (
            "a.rs",
            "/// Doc\n#[a]\npub struct Record { a: u8 }\nimpl<T> Tr for Record<T> {\n}\npub(crate) fn f() {}",
            ["Record", "Record", "f"],
        ),
        (
            "A.java",
            "package a;\n/** Doc. */\npublic class Record {\n    @Override\n    public int a() {\n    }\n}",
            ["", "Record"],
        ),
        ("a.cs", "public partial class Record\n{\n    void A()\n    {\n    }\n}", ["Record"]),
        ("a.kt", "data class Point(val x: Int)\nfun String.twice() = this + this", ["Point", "String.twice"]),
        ("a.rb", 'require "x"\n# Doc\nclass Record\n  def self.open(path)\n  end\nend', ["", "Record"]),
        (
            "a.lua",
            "local function a()\nend\nfunction M.b(x)\nend\nM.c = function()\nend",
            ["a", "M.b", "M.c"],
        ),
        ("a.r", "f <- function(x) {\n  x\n}", ["f"]),
        ("a.jl", "mutable struct P\nend\nfunction go!(x)\nend", ["P", "go!"]),
        (
            "a.sh",
            "#!/bin/sh\nset -e\n# Doc\nbuild() {\n  x\n}\nfunction test-it {\n}\nbuild",
            ["", "build", "test-it", ""],
        ),
        (
            "a.sql",
            "-- Ships\nCREATE TABLE IF NOT EXISTS main.ships (\n  id int\n);\ncreate view v as\nselect 1;",
            ["main.ships", "v"],
        ),
        ("a.clj", "(ns a.b)\n; Doc\n(defn open [x]\n  x)", ["a.b", "open"]),
        ("a.toml", "x = 1\n[tool.loom]\na = [\n]\nb = 2\n[[items]]\nc = 3", ["", "tool.loom", "items"]),
        ("a.yaml", "# head\nservices:\n- a\n- b\nvolumes:\n  x: 1", ["services", "volumes"]),
        ("a.css", "/* Doc\n more */\n.ship > a {\n  x: y;\n}\n@media (x) {\n}", [".ship > a", "@media (x)"]),
        ("a.hs", "f x = 1\ng x = 2", [""]),
    ],
)
def test_units_are_found_in_many_languages(load, name: str, source: str, names: list[str]) -> None:
    assert [unit for unit, _ in units(load(name, source))] == names


def test_a_method_keeps_its_annotations_and_ends_with_its_class(load) -> None:
    body = "        call();\n" * 120
    source = f"class Record {{\n    int a;\n\n    @Override\n    public int open() {{\n{body}    }}\n}}\n"
    draft = load("A.java", source)
    assert units(draft) == [("Record", "class Record {"), ("Record.open", "@Override")]
    assert draft.text[draft.blocks[1].end - 1] == "}"


def test_tabs_indent_and_long_lines_define_nothing(load) -> None:
    assert [unit for unit, _ in units(load("a.py", "def f():\n\tx = 1\n\n\ty = 2\n"))] == ["f"]
    assert units(load("a.js", "function f(){" + "x;" * 400))[0][0] == ""


def test_chinese_names_and_comments_are_kept(load) -> None:
    assert units(load("a.py", "# 打开\ndef 打开(路径):\n    return 路径\n")) == [("打开", "# 打开")]


def test_the_source_encoding_declaration_is_honoured(load) -> None:
    assert "织机" in load("a.py", "# coding: gbk\n# 织机\n".encode("gbk")).text
