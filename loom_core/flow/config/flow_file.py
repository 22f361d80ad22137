"""Reading `flow.json`: JSON with comments and trailing commas; what is wrong has a place and advice.

{
  "flow_url": "https://flow-api.example",
  "flows": [
    { "flow_id": "leave_request", "trigger_patterns": ["我要请假"], "endpoint": "POST /leave" }
  ]
}
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from loom_core.config_file import (
    ConfigProblem,
    ConfigText,
    PlacedProblem,
    UnreadableConfigError,
    read_config_file,
)
from loom_core.flow.config.checks import file_problems
from loom_core.flow.config.machine_checks import machine_problems
from loom_core.flow.config.models import FlowFile
from loom_core.flow.config.sound_parts import SoundParts

__all__ = [
    "LoadedFlows",
    "check_flow_file",
    "flow_file_problems",
    "flow_file_warnings",
    "parse_flow_file",
    "read_flow_file",
]

_DEPTH = 64  # levels whose places are known: steps stand in steps
_MAX_BYTES = 16 << 20
_ADVICE = "Correct it there; docs/reference/flow-config.md has every key."
_REFERENCE = re.compile(r"\benv:([A-Za-z_]\w*)")
_VERSION = 16  # hexadecimal digits


@dataclass(frozen=True, slots=True)
class LoadedFlows:
    """A flow file, read and checked.

    Attributes:
        file: what it says.
        version: changes when that does; comments and blanks do not count.
        path: where it is.
        variables: environment variables that it refers to.
    """

    file: FlowFile
    version: str
    path: Path
    variables: tuple[str, ...] = ()


def read_flow_file(path: Path, *, tools: Collection[str] = ()) -> LoadedFlows:
    """What a file says. Blocks.

    Args:
        path: the file.
        tools: names of tools that there are besides `system_tools`.

    Raises:
        ConfigError: it is not there, cannot be read, or is no such configuration; the message says where and
            why.
    """
    return _loaded(_read(path), path, tools)


def parse_flow_file(text: str, *, name: str = "flow.json", tools: Collection[str] = ()) -> LoadedFlows:
    """What a text says.

    Args:
        text: what stands in the file.
        name: what the file is called in messages.
        tools: as for `read_flow_file`.

    Raises:
        ConfigError: as for `read_flow_file`.
    """
    return _loaded(ConfigText.of(text, name=name, depth=_DEPTH), Path(name), tools)


def check_flow_file(file: FlowFile, *, tools: Collection[str] = ()) -> LoadedFlows:
    """Check a configuration that a program has made, as a file is checked.

    Args:
        file: the configuration.
        tools: as for `read_flow_file`.

    Raises:
        ConfigError: it cannot be used; the message says where and why.
    """
    text = file.model_dump_json(by_alias=True, exclude_unset=True, indent=2)
    return parse_flow_file(text, name=type(file).__name__, tools=tools)


def flow_file_problems(path: Path, *, tools: Collection[str] = ()) -> list[PlacedProblem]:
    """Everything that is wrong with a file, in the order of the file. Blocks.

    Args:
        path: the file.
        tools: as for `read_flow_file`.
    """
    try:
        written = _read(path)
    except UnreadableConfigError as error:
        return [error.problem]
    if written is None:
        return [_empty(path).problem]
    found = [written.placed(each) for each in _problems(written, tools)[1]]
    return sorted(dict.fromkeys(found), key=lambda each: (each.line, each.column))


def flow_file_warnings(path: Path) -> list[PlacedProblem]:
    """What in a file that is in order will not work on this machine as it is. Blocks.

    Args:
        path: the file.

    Raises:
        ConfigError: as for `read_flow_file`.
    """
    written = _read(path)
    return [] if written is None else [written.placed(each) for each in machine_problems(written.value)]


def _read(path: Path) -> ConfigText | None:
    return read_config_file(path, depth=_DEPTH, max_bytes=_MAX_BYTES, required=True)


def _loaded(written: ConfigText | None, path: Path, tools: Collection[str]) -> LoadedFlows:
    if written is None:
        raise _empty(path)
    file, problems = _problems(written, tools)
    if file is None or problems:
        raise written.refusal(problems, advice=_ADVICE)
    variables = dict.fromkeys(_REFERENCE.findall(written.text))
    return LoadedFlows(file, _version(written.value), path, tuple(variables))


def _empty(path: Path) -> UnreadableConfigError:
    """An editor that writes a file anew empties it first: what stood there is not gone for that."""
    advice = "Write {} for a file without flows; `loom-flow-server init` writes one that works."
    return UnreadableConfigError(PlacedProblem(str(path), 1, 1, "there is nothing in it.", advice))


def _problems(written: ConfigText, tools: Collection[str]) -> tuple[FlowFile | None, list[ConfigProblem]]:
    """What a text says, as far as it is a flow file at all; and what is wrong with it."""
    try:
        json.dumps(written.value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return None, [ConfigProblem((), r"there is half a character: \ud800 to \udfff come in pairs.")]
    except RecursionError:
        return None, [ConfigProblem((), "it is nested too deeply.")]
    try:
        file = FlowFile.model_validate(written.value)
    except ValidationError as error:
        problems = [*written.problems(error, FlowFile)]
        sound = SoundParts(written.value)
        others = file_problems(sound.file, tools=tools) if sound.file is not None else ()
        return None, [*problems, *(each for each in others if not sound.means_nothing(each.path))]
    return file, [*file_problems(file, tools=tools)]


def _version(value: Any) -> str:  # noqa: ANN401 - JSON
    canonical = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:_VERSION]
