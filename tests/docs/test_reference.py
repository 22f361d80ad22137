"""The pages that are made from the code are what the code says, and the diagram is what is imported."""

from __future__ import annotations

import ast
import configparser
import re
import subprocess
import sys
from argparse import ArgumentParser
from dataclasses import fields
from importlib import import_module
from pathlib import Path
from typing import Any, get_args

import pytest
from loom_agent.profiles.profile_config import ProfileConfig
from pydantic import BaseModel

from loom_core.errors import LoomError
from loom_core.knowledge.sources.remote.http import HTTPKnowledgeConfig
from loom_core.llm.config import ProviderConfig
from loom_core.llm.interface import Usage
from loom_core.runs.events import EventType
from loom_core.tools.permission.rule import PermissionRule

_ROOT = Path(__file__).parents[2]
_REFERENCE = _ROOT / "docs" / "reference"
_NAMES = sorted(path.stem.removesuffix("_reference") for path in (_ROOT / "tools").glob("*_reference.py"))
_PROGRAMS = {"kb": "loom_kb", "query": "loom_query", "agent": "loom_agent", "flow": "loom_flow"}


def _architecture() -> Any:
    return import_module("tools.architecture_reference")


@pytest.mark.parametrize("name", [name for name in _NAMES if name != "hostile"])
def test_a_page_is_what_the_code_says(name: str) -> None:
    assert import_module("tools.reference").differences(name) == {}, "run: python -m tools.reference"


def test_the_page_of_hostile_input_counts_the_tests(request: pytest.FixtureRequest) -> None:
    hostile = import_module("tools.hostile_reference")
    config = request.config
    asked = [(config.invocation_params.dir / each).resolve() for each in config.args]
    whole = asked == [_ROOT / "tests"] and not (config.option.markexpr or config.option.keyword)
    cases = hostile.marked_cases(request.session.items) if whole else None
    assert hostile.PAGE.read_text(encoding="utf-8") == hostile.page(cases), "run: python -m tools.reference"


def test_the_command_says_which_page_is_old_and_writes_it(tmp_path: Path, monkeypatch, capsys) -> None:
    reference = import_module("tools.reference")
    events = import_module("tools.event_reference")
    page = tmp_path / "events.md"
    page.write_text(events.page() + "added by hand\n", encoding="utf-8")
    monkeypatch.setattr(events, "PAGE", page)
    monkeypatch.setattr(reference, "_ROOT", tmp_path)

    assert reference.main(["event", "--check"]) == 1
    told = capsys.readouterr()
    assert "events.md" in told.out
    assert "-added by hand" in told.out
    assert "python -m tools.reference" in told.err
    assert reference.main(["event"]) == 0
    assert reference.main(["event", "--check"]) == 0
    assert page.read_text(encoding="utf-8") == events.page()


def test_a_page_that_no_one_makes_is_refused() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tools.reference", "tolls"],
        cwd=_ROOT, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert done.returncode == 2
    assert "there is no tolls" in done.stderr


def test_a_key_of_which_nothing_is_said_is_refused() -> None:
    config = import_module("tools.config_reference")

    class _Silent(BaseModel):
        key: str = ""

    with pytest.raises(ValueError, match=r"Nothing is said of _Silent\.key"):
        list(config._rows(_Silent))


def test_tables_of_keys_follow_the_models_that_read_them() -> None:
    config = import_module("tools.config_reference")
    made = {page.name: text for page, text in config.pages().items()}
    assert "| `files.root` | required |" in made["agent-config.md"]
    assert "| `iterations` | `50` | Turns of the model. |" in made["agent-config.md"]
    assert all(f"| `{key}` |" in made["permissions.md"] for key in PermissionRule.model_fields)
    assert all(f"| `{key}` |" in made["query-config.md"] for key in HTTPKnowledgeConfig.model_fields)


def test_no_payload_ends_in_and_so_on() -> None:
    events = import_module("tools.event_reference").page()
    table = events[events.index("| type |") :]
    assert "…" not in table
    (usage,) = (line for line in table.splitlines() if line.startswith("| `usage`"))
    assert all(f"`{each.name}`" in usage for each in fields(Usage))


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ('import os\nos.environ.get("SOME_KEY", "")', ["SOME_KEY"]),
        ('variables["OTHER_KEY"]', ["OTHER_KEY"]),
        ('"THIRD_KEY" in os.environ', ["THIRD_KEY"]),
        ('NAME = "LOOM_SOMETHING"', ["LOOM_SOMETHING"]),
        ('f"Bearer ${{LOOM_OTHER}}"', ["LOOM_OTHER"]),
        ('def read():\n    """What LOOM_NOTHING said."""', []),
        ('answers["SOME_KEY"]', []),
    ],
)
def test_a_variable_is_found_where_the_source_reads_it(source: str, names: list[str]) -> None:
    environment = import_module("tools.environment_reference")
    assert list(environment._names_in(ast.parse(source))) == names


def test_a_variable_that_is_read_and_not_told_is_refused(monkeypatch) -> None:
    environment = import_module("tools.environment_reference")
    found = environment.find_variables()
    monkeypatch.setattr(environment, "find_variables", lambda: found | {"LOOM_NEW"})
    with pytest.raises(ValueError, match="LOOM_NEW"):
        environment.page()
    monkeypatch.setattr(environment, "find_variables", lambda: found - {"LOOM_HOME"})
    with pytest.raises(ValueError, match="LOOM_HOME"):
        environment.page()


def test_a_package_that_does_not_say_what_it_is_is_refused(tmp_path: Path, monkeypatch) -> None:
    architecture = _architecture()
    monkeypatch.setattr(architecture, "_ROOT", tmp_path)
    (tmp_path / "loom_core").mkdir()
    (tmp_path / "loom_core" / "silent.py").write_text("x = 1\n", encoding="utf-8")
    with pytest.raises(ValueError, match=r"loom_core\.silent"):
        architecture._about("loom_core.silent")


def test_every_event_error_command_and_tool_has_its_place() -> None:
    events, errors, commands, tools = (
        (_REFERENCE / name).read_text(encoding="utf-8")
        for name in ("events.md", "errors.md", "command-line.md", "tools.md")
    )
    assert all(f"| `{name}`" in events for name in get_args(EventType))
    public = {kind.__name__ for kind in _below(LoomError) if not kind.__name__.startswith("_")}
    assert {f"## `{name}`" for name in public} <= set(errors.splitlines())
    for folder, package in _PROGRAMS.items():
        parser: ArgumentParser = import_module(f"{package}.cli").SERVER.parser()
        every = import_module("tools.command_reference").commands(parser)
        assert all(f"### `{parser.prog} {name}" in commands for name in every)
        contract = import_module("tools.contract").load_accepted(folder)
        assert all(f"### `{tool['name']}`" in tools for tool in contract["full"]["tools"])


def test_every_key_of_agent_json_has_its_place() -> None:
    """Its keys stand in tables by what they are about, so that one could be in none."""
    text = (_REFERENCE / "agent-config.md").read_text(encoding="utf-8")
    named = {part for span in re.findall(r"`([^`\n]+)`", text) for part in re.split(r"[^\w]+", span)}
    assert _keys(ProfileConfig) - named == set()


def _keys(model: type[BaseModel]) -> set[str]:
    """The keys of a model and of all models in it, but for a language model, which has a page of its own."""
    found = set(model.model_fields) if model is not ProviderConfig else set()
    if found:
        for field in model.model_fields.values():
            found |= {key for kind in _kinds(field.annotation) for key in _keys(kind)}
    return found


def _kinds(annotation: Any) -> list[type[BaseModel]]:
    """The models in an annotation."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [kind for part in get_args(annotation) for kind in _kinds(part)]


def _below(kind: type) -> set[type]:
    """The classes below one that Loom has defined in modules that are loaded now."""
    direct = [each for each in kind.__subclasses__() if each.__module__.startswith("loom_core.")]
    return {*direct, *(deeper for each in direct for deeper in _below(each))}


def test_the_packages_import_each_other_in_no_circle() -> None:
    architecture = _architecture()
    graph = architecture.imports()
    assert len(graph) > 20
    assert not [name for name in graph if name in architecture.reachable(graph, name)]


def test_the_diagram_shows_every_package_and_says_all_that_is_imported() -> None:
    architecture = _architecture()
    graph = architecture.group_foundations(architecture.imports())
    drawn = set(re.findall(r"^    (\w+) --> (\w+)$", architecture.diagram(), re.MULTILINE))
    names = {architecture._id(name): name for name in graph}
    shown: dict[str, frozenset[str]] = {
        name: frozenset(names[to] for start, to in drawn if names[start] == name) for name in graph
    }
    for name in graph:
        assert architecture.reachable(shown, name) == architecture.reachable(graph, name), name
    assert drawn == {(architecture._id(name), architecture._id(to)) for name in shown for to in shown[name]}


def test_the_diagram_follows_the_layers_that_are_enforced() -> None:
    architecture = _architecture()
    settings = configparser.ConfigParser()
    settings.read(_ROOT / ".importlinter", encoding="utf-8")
    layers = settings["importlinter:contract:layers"]["layers"].split("\n")
    level = {
        name.strip("() "): height
        for height, layer in enumerate(reversed([line for line in layers if line.strip()]))
        for name in re.split(r"[:|]", layer)
    }
    graph = architecture.imports()
    assert set(graph) - set(level) <= {"loom_core.exports"}, "a package is in no layer"
    for name, used in graph.items():
        for each in used & set(level):
            assert level[each] <= level.get(name, 99), f"{name} imports {each}, which stands above it"


def _cycles(imports: dict[str, set[str]]) -> set[str]:
    """The modules that are part of a cycle or lie between two."""
    left = {name: set(used) for name, used in imports.items()}
    while True:
        imported = {each for used in left.values() for each in used}
        ends = {name for name, used in left.items() if name not in imported or not used & left.keys()}
        if not ends:
            return set(left)
        left = {name: used - ends for name, used in left.items() if name not in ends}


def test_there_is_no_cycle_of_imports() -> None:
    """As docs/explanation/architecture.md says."""
    graph = _architecture().modules()
    assert (
        _cycles({name: set(graph.find_modules_directly_imported_by(name)) for name in graph.modules}) == set()
    )
