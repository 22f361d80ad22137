from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loom_core.errors import ConfigError
from loom_core.plugins import PluginRegistry, create, list_registered, register
from tests.fixtures.distributions import install, run_with

_OWN_RETRIEVERS = {
    "bm25", "decomposition", "dense", "fusion", "graph",
    "hybrid", "hyde", "keyword", "knowledge_base", "llama_bm25",
    "llama_dense", "llama_hybrid", "multi_query",
}  # fmt: skip
_OWN_RERANKERS = {"api", "cross_encoder", "features", "llm"}
_OWN_TOOLS = {
    "edit_file", "http_get", "http_request", "list_files", "read_file", "search_files", "shell", "write_file",
}  # fmt: skip


def test_own_retrievers_and_rerankers_are_listed() -> None:
    assert set(list_registered("retriever")) >= _OWN_RETRIEVERS
    assert set(list_registered("reranker")) >= _OWN_RERANKERS


def test_own_tools_and_memories_are_listed() -> None:
    assert set(list_registered("tool")) >= _OWN_TOOLS
    assert set(list_registered("memory")) >= {"in_memory", "sqlite"}


@pytest.mark.parametrize(
    ("kind", "name"),
    [("retriever", name) for name in sorted(_OWN_RETRIEVERS)]
    + [("reranker", name) for name in sorted(_OWN_RERANKERS)]
    + [("tool", name) for name in sorted(_OWN_TOOLS)]
    + [("memory", "in_memory"), ("memory", "sqlite")],
)
def test_every_own_name_leads_to_what_registers_it(kind: Any, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name!r} cannot be made"):
        create(kind, name, no_such=1)


@pytest.mark.slow
def test_retriever_is_created_by_name_without_an_import_by_the_caller() -> None:
    done = run_with(
        """
        from loom_core.plugins import create
        from loom_core.errors import ConfigError
        try:
            create("retriever", "dense", [])
        except ConfigError as error:
            print(error.message)
        """
    )
    assert done.stdout == "The retriever 'dense' has nothing to search.\n"


def test_importing_the_registry_imports_nothing_it_creates() -> None:
    done = run_with(
        """
        import sys
        import loom_core.plugins
        print(sorted(name for name in sys.modules if name.startswith("loom_core.")))
        """
    )
    assert done.stdout == "['loom_core.errors', 'loom_core.plugin_registry', 'loom_core.plugins']\n"


def test_registered_function_and_class_are_called_with_the_arguments() -> None:
    @register("reranker", "test-function")
    def make(first: str, *, second: int = 2) -> tuple[str, int]:
        return first, second

    @register("reranker", "test-class")
    class Made:
        def __init__(self, size: int) -> None:
            self.size = size

    assert create("reranker", "test-function", "a", second=3) == ("a", 3)
    made = create("reranker", "test-class", size=5)
    assert isinstance(made, Made)
    assert made.size == 5
    assert {"test-function", "test-class"} <= set(list_registered("reranker"))


def test_taken_name_is_refused_unless_it_is_the_same_object() -> None:
    def one() -> None: ...
    def other() -> None: ...

    register("retriever", "test-taken")(one)
    assert register("retriever", "test-taken")(one) is one
    with pytest.raises(ConfigError, match=r"test-taken.*taken"):
        register("retriever", "test-taken")(other)
    register("reranker", "test-taken")(other)  # another kind is another name


@pytest.mark.parametrize(("kind", "name"), [("retriever", "keyword"), ("reranker", "features")])
def test_name_of_an_own_implementation_is_taken_before_it_is_loaded(kind: str, name: str) -> None:
    done = run_with(
        f"""
        from loom_core.errors import ConfigError
        from loom_core.plugins import register
        try:
            register("{kind}", "{name}")(lambda: None)
        except ConfigError as error:
            print(error.advice)
        """
    )
    assert done.stdout == "Register it under another name.\n"


def test_unknown_name_is_told_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match="no retriever 'bm52'") as error:
        create("retriever", "bm52")
    assert "bm25, decomposition, dense" in error.value.advice


def test_unknown_kind_is_told_with_those_that_exist() -> None:
    with pytest.raises(ConfigError, match=r"no kind of plugin 'chunker'.*reranker, retriever, tool"):
        list_registered("chunker")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("args", "params", "named"),
    [
        (([],), {"topk": 3}, "'topk'"),
        ((), {"top_k": 3}, "'sources'"),
        (([], 3), {}, "too many positional arguments"),
        (([],), {"sources": []}, "'sources'"),
    ],
)
def test_arguments_that_do_not_fit_are_told_with_those_that_would(
    args: tuple[object, ...], params: dict[str, object], named: str
) -> None:
    with pytest.raises(ConfigError) as error:
        create("retriever", "dense", *args, **params)
    assert named in error.value.message
    assert error.value.advice == "It takes: sources, top_k=5, embedding_config=None."


def test_type_error_inside_a_constructor_is_not_disguised() -> None:
    @register("reranker", "test-broken")
    def make() -> int:
        return len(5)  # type: ignore[arg-type]

    with pytest.raises(TypeError, match="has no len"):
        create("reranker", "test-broken")


def test_installed_distributions_are_found_by_module_and_by_function(tmp_path: Path) -> None:
    folder = install(
        tmp_path,
        "loom_extra",
        entry_points="by-module = extra_module\nby-function = extra_function:add",
        modules={
            "extra_module": """
                from loom_core.plugins import list_registered, register
                print("imported once")
                list_registered("retriever")  # asking while it is loaded is no endless loop

                @register("retriever", "倒排")
                def make(sources, *, top_k=5):
                    return ("倒排", sources, top_k)
            """,
            "extra_function": """
                from loom_core.plugins import register

                def add():
                    register("reranker", "extra")(lambda: "reranker")
            """,
        },
    )
    done = run_with(
        """
        from loom_core.plugins import create, list_registered
        sys.stdout.reconfigure(encoding="utf-8")
        print(create("retriever", "倒排", ["a"], top_k=7))
        print("倒排" in list_registered("retriever"), "extra" in list_registered("reranker"))
        print(create("reranker", "extra"))
        """,
        folder,
    )
    assert done.stdout.splitlines() == ["imported once", "('倒排', ['a'], 7)", "True True", "reranker"]


def test_own_retriever_is_created_without_loading_other_distributions(tmp_path: Path) -> None:
    folder = install(
        tmp_path, "loom_extra", entry_points="x = extra_module", modules={"extra_module": "print('imported')"}
    )
    done = run_with(
        """
        from loom_core.errors import ConfigError
        from loom_core.plugins import create
        try:
            create("retriever", "bm25", [])
        except ConfigError:
            print("no sources")
        """,
        folder,
    )
    assert done.stdout == "no sources\n"


def test_broken_distribution_is_logged_with_its_name_and_passed_over(tmp_path: Path) -> None:
    folder = install(
        tmp_path,
        "loom_broken",
        entry_points="gone = no_such\nfaulty = faulty_module\nleaving = leaving_module\n"
        "thief = thief_module\ngood = good_module",
        modules={
            "leaving_module": "raise SystemExit('no licence server')",
            "faulty_module": "raise OSError('no licence')",
            "thief_module": """
                from loom_core.plugins import register
                register("retriever", "dense")(print)
            """,
            "good_module": """
                from loom_core.plugins import register
                register("retriever", "good")(lambda: "good")
            """,
        },
    )
    done = run_with(
        """
        import logging
        logging.basicConfig(level="WARNING")
        from loom_core.plugins import create
        print(create("retriever", "good"))
        """,
        folder,
    )
    assert done.stdout == "good\n"
    for name in ("gone", "faulty", "leaving", "thief"):
        assert f"The plugin '{name}' ({name if name != 'gone' else 'no_such'}" in done.stderr
    assert "no licence" in done.stderr
    assert "'dense' is taken" in done.stderr


@pytest.mark.slow
def test_tools_and_memories_of_an_installed_distribution_are_created_by_name(tmp_path: Path) -> None:
    folder = install(
        tmp_path,
        "loom_extra",
        entry_points="extra = extra_module",
        modules={
            "extra_module": """
                from loom_core.plugins import PluginRegistry
                from loom_core.tools.function_tool import tool

                @PluginRegistry.register_tool("时钟")
                def clock(zone="UTC"):
                    @tool(name="时钟", read_only=True)
                    def clock() -> str:
                        return zone
                    return clock

                @PluginRegistry.register_memory("forgetful")
                class Forgetful:
                    pass
            """,
        },
    )
    done = run_with(
        """
        import anyio
        from loom_core.plugins import PluginRegistry, list_registered
        made = PluginRegistry.get_tool("时钟", zone="Asia/Shanghai")
        print(anyio.run(made.call, {}).text)
        print(type(PluginRegistry.get_memory("forgetful")).__name__, "forgetful" in list_registered("memory"))
        """,
        folder,
    )
    assert done.stdout.splitlines() == ["Asia/Shanghai", "Forgetful True"]


def test_the_registry_class_is_the_same_registry() -> None:
    @PluginRegistry.register_llm("test-facade")
    def llm(name: str) -> str:
        return name

    @PluginRegistry.register_retriever("test-facade")
    def retriever() -> str:
        return "retriever"

    assert PluginRegistry.get_llm("test-facade", "m") == create("llm", "test-facade", "m") == "m"
    assert PluginRegistry.get_retriever("test-facade") == create("retriever", "test-facade") == "retriever"


def test_a_tool_that_comes_with_loom_is_created_by_name(tmp_path: Path) -> None:
    assert PluginRegistry.get_tool("read_file", tmp_path).name == "read_file"
