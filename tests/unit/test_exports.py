"""Names that packages offer, imported when they are asked for."""

from __future__ import annotations

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

_CORE = Path(__file__).parents[2] / "loom_core"
_PACKAGES = sorted(_CORE.rglob("__init__.py"))
_OFFERING = [init for init in _PACKAGES if "__getattr__, __dir__ = exports(" in init.read_text("utf-8")]
_RACE = """
import sys, threading
from importlib import import_module

modules = sys.argv[1:]
start = threading.Barrier(len(modules))

def load(module):
    start.wait()
    import_module(module)

threads = [threading.Thread(target=load, args=[module]) for module in modules]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
"""


def _dotted(init: Path) -> str:
    return ".".join(init.parent.relative_to(_CORE.parent).parts)


def _seen_by_type_checkers(init: Path) -> list[str]:
    blocks = [
        node.body
        for node in ast.parse(init.read_text("utf-8")).body
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    imports = [node for block in blocks for node in block if isinstance(node, ast.ImportFrom)]
    return sorted(alias.asname or alias.name for node in imports for alias in node.names)


@pytest.mark.slow
def test_threads_may_import_modules_of_one_package_for_the_first_time_at_once() -> None:
    modules = ["loom_core.knowledge.rag.requests", "loom_core.knowledge.rag.knowledge_base"]
    modules += [
        "loom_core.knowledge.retrieval.patterns",
        "loom_core.knowledge.rag",
        "loom_core.knowledge.sources.library",
    ]
    done = subprocess.run(
        [sys.executable, "-c", _RACE, *modules], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stderr == ""


@pytest.mark.parametrize("init", _PACKAGES, ids=_dotted)
def test_a_package_imports_none_of_its_own_modules_before_they_are_asked_for(init: Path) -> None:
    imported = [node for node in ast.parse(init.read_text("utf-8")).body if isinstance(node, ast.ImportFrom)]
    assert not [node.module for node in imported if f"{node.module}.".startswith(f"{_dotted(init)}.")]


@pytest.mark.parametrize("init", _PACKAGES, ids=_dotted)
def test_every_name_that_a_package_offers_is_there_and_is_no_module_of_its(init: Path) -> None:
    package = import_module(_dotted(init))
    for name in getattr(package, "__all__", ()):
        assert getattr(package, name) is not None
        assert not (init.parent / f"{name}.py").exists()


@pytest.mark.parametrize("init", _OFFERING, ids=_dotted)
def test_type_checkers_and_dir_see_the_names_that_a_package_offers(init: Path) -> None:
    package = import_module(_dotted(init))
    assert _seen_by_type_checkers(init) == sorted(package.__all__)
    assert set(package.__all__) <= set(dir(package))


def test_importing_the_packages_loads_no_module_of_theirs() -> None:
    program = (
        "import sys\n"
        "from importlib import import_module\n"
        "for package in sys.argv[1:]: import_module(package)\n"
        "print(*(name for name, module in sys.modules.items()\n"
        "        if name.startswith('loom_core.') and not hasattr(module, '__path__')))\n"
    )
    packages = [_dotted(init) for init in _OFFERING]
    done = subprocess.run(
        [sys.executable, "-c", program, *packages], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.split() == ["loom_core.exports"]


def test_a_name_that_a_package_does_not_offer_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match=r"module 'loom_core\.knowledge\.rag' has no attribute 'Graf'"):
        _ = import_module("loom_core.knowledge.rag").Graf


@pytest.mark.slow
def test_what_most_programs_begin_with_is_offered_at_the_top_and_loaded_when_asked_for() -> None:
    program = (
        "import sys, loom_core\n"
        "assert [name for name in sys.modules if name.startswith('loom_core')] == ['loom_core']\n"
        "assert set(loom_core.__all__) <= set(dir(loom_core))\n"
        "from loom_core import KnowledgeBase, create_model, tool\n"
        "assert 'loom_core.agent' not in sys.modules\n"
        "from loom_core import Agent, Chain, FlowRouter, Router, Workflow, WorkflowOrchestrator\n"
        "from loom_core.agent import Agent as Same\n"
        "from loom_core.knowledge import GraphRAGKnowledgeBase\n"
        "from loom_core.llm import create_provider\n"
        "assert Agent is Same and KnowledgeBase is GraphRAGKnowledgeBase\n"
        "assert create_model is create_provider\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def test_type_checkers_see_what_is_offered_at_the_top() -> None:
    assert _seen_by_type_checkers(_CORE / "__init__.py") == sorted(import_module("loom_core").__all__)
