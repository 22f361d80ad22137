"""What can be checked of a flow file some parts of which have a wrong form."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from copy import deepcopy
from typing import Any, cast

from pydantic import ValidationError

from loom_core.config_file import ConfigPath, standing_path
from loom_core.flow.config.models import FlowFile

__all__ = ["SoundParts"]

_ROUNDS = 20
_SOMEWHERE = "https://flow.example"
_ANY = {"additionalProperties": True}
_NAMES = {"flows": "flow_id", "skills": "id", "system_tools": "name", "steps": "stepId"}
_STAND_INS: Mapping[str, Mapping[str, Any]] = {
    "flows": {"endpoint": _SOMEWHERE, "input_schema": _ANY},
    "skills": {"condition": "?", "action": "?"},
    "system_tools": {"description": "?", "endpoint": _SOMEWHERE},
    "steps": {"operation": _SOMEWHERE},
}
_PATTERNS = "trigger_patterns"
_VALUES: Mapping[str, object] = {"flow_url": _SOMEWHERE, "input_schema": _ANY}
"""In place of what others refer to, so that these are not told that there is none."""


class SoundParts:
    """A flow file without what has a wrong form: the smallest parts are left out that can be.

    In the place of a flow, a skill, a tool or a step that cannot be without what is wrong in it stands
    another of the same name.

    Args:
        written: what the file says.

    Attributes:
        file: what is left; None where too much is wrong.
    """

    def __init__(self, written: Mapping[str, Any]) -> None:
        self._value: dict[str, Any] = deepcopy(dict(written))
        self._stand_ins = set[ConfigPath]()
        self._gaps = set[ConfigPath]()
        self.file: FlowFile | None = None
        for _ in range(_ROUNDS):  # what lacks what was left out is left out in the next
            try:
                self.file = FlowFile.model_validate(self._value)
            except ValidationError as error:
                wrong = {standing_path(self._value, each["loc"]) for each in error.errors(include_url=False)}
                if not all(map(self._left_out, sorted(wrong, key=len, reverse=True))):
                    return
            else:
                return

    def means_nothing(self, path: ConfigPath) -> bool:
        """Whether what is wrong at a path comes of what was left out."""
        return path in self._gaps or any(path[: len(part)] == part for part in self._stand_ins)

    def _left_out(self, path: ConfigPath) -> bool:
        """Leave out a part, or put another in its place; False if neither can be done."""
        if kind := _kind(path):
            if path in self._stand_ins:
                return False
            self._stand_ins.add(path)
            parts: list[Any] = self._at(path[:-1])
            index = cast("int", path[-1])
            parts[index] = _stand_in(kind, parts[index], len(self._stand_ins))
            return True
        if path and isinstance(path[-1], int):  # else the places of its neighbours change
            path = path[:-1]
        if not path or path[-1] in _STAND_INS.keys() - {"steps"} or isinstance(path[-1], int):
            return False
        key = str(path[-1])
        around = self._at(path[:-1])
        self._gaps.add(path[:-1])
        if key in _VALUES and around.get(key) != _VALUES[key]:
            around[key] = _VALUES[key]
        else:
            around.pop(key, None)
        return True

    def _at(self, path: ConfigPath) -> Any:  # noqa: ANN401 - JSON
        found: Any = self._value
        for part in path:
            found = found[part]
        return found


def _kind(path: ConfigPath) -> str:
    """What stands at a path, if something can stand in for it."""
    match path:
        case (*_, str(key), int()) if key in _STAND_INS or key == _PATTERNS:
            return key
        case (*_, "parallel", int(), int()):
            return "steps"
        case _:
            return ""


def _stand_in(kind: str, part: object, number: int) -> object:
    if kind == _PATTERNS:
        return "x"
    said: Mapping[str, Any] = cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else {}
    name = said.get(_NAMES[kind]) or f"unnamed_{number}"
    stand_in: dict[str, Any] = {**_STAND_INS[kind], _NAMES[kind]: name}
    outputs = said.get("outputs")
    if isinstance(outputs, Mapping) and kind in {"flows", "steps"}:
        named = cast("Collection[str]", outputs)
        stand_in["outputs"] = dict.fromkeys(named, "$response.body")
    return stand_in
