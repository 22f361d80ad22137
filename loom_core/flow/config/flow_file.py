"""Parser and watcher of `flow.json`: JSON with comments and trailing commas; problems have place and advice.

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
import logging
import os
import re
import time
from collections.abc import Collection, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, cast

import anyio
from anyio import to_thread
from pydantic import ValidationError

from loom_core.config_file import (
    ConfigPath,
    ConfigProblem,
    ConfigText,
    PlacedProblem,
    UnreadableConfigError,
    existing_path,
    read_config_file,
)
from loom_core.errors import ConfigError, NetError
from loom_core.flow.config.flow_validation import file_problems
from loom_core.flow.config.models import FlowFile
from loom_core.flow.config.models_endpoint import reference_in
from loom_core.flow.config.step_validation import texts_in, walk_steps

__all__ = [
    "FlowFileWatcher",
    "LoadedFlows",
    "ValidParts",
    "check_flow_file",
    "environment_problems",
    "flow_file_problems",
    "flow_file_warnings",
    "parse_flow_file",
    "read_flow_file",
]


_log = logging.getLogger(__name__)


_DEPTH = 64  # depth to which positions are known: steps contain steps
_MAX_BYTES = 16 << 20
_ADVICE = "Correct it there; docs/reference/flow-config.md has every key."
_REFERENCE = re.compile(r"\benv:([A-Za-z_]\w*)")
_VERSION = 16  # hexadecimal digits


@dataclass(frozen=True, slots=True)
class LoadedFlows:
    """A flow file, parsed and validated.

    Attributes:
        file: the parsed file.
        version: a digest of the content; comments and whitespace do not count.
        path: path of the file.
        variables: environment variables that it refers to.
    """

    file: FlowFile
    version: str
    path: Path
    variables: tuple[str, ...] = ()


def read_flow_file(path: Path, *, tools: Collection[str] = ()) -> LoadedFlows:
    """Read and parse a flow file. Blocks.

    Args:
        path: the file.
        tools: names of available tools in addition to `system_tools`.

    Raises:
        ConfigError: it does not exist, is not readable, or is no valid configuration; the message says where
            and why.
    """
    return _load(_read(path), path, tools)


def parse_flow_file(text: str, *, name: str = "flow.json", tools: Collection[str] = ()) -> LoadedFlows:
    """Parse the text of a flow file.

    Args:
        text: the content of the file.
        name: name of the file in messages.
        tools: as for `read_flow_file`.

    Raises:
        ConfigError: as for `read_flow_file`.
    """
    return _load(ConfigText.of(text, name=name, depth=_DEPTH), Path(name), tools)


def check_flow_file(file: FlowFile, *, tools: Collection[str] = ()) -> LoadedFlows:
    """Validate a configuration built by a program, with the same checks as a file.

    Raises:
        ConfigError: it is invalid; the message says where and why.
    """
    text = file.model_dump_json(by_alias=True, exclude_unset=True, indent=2)
    return parse_flow_file(text, name=type(file).__name__, tools=tools)


def flow_file_problems(path: Path, *, tools: Collection[str] = ()) -> list[PlacedProblem]:
    """Return all problems of a file, in the order of the file. Blocks."""
    try:
        written = _read(path)
    except UnreadableConfigError as error:
        return [error.problem]
    if written is None:
        return [_empty_file_error(path).problem]
    found = [written.locate(each) for each in _problems(written, tools)[1]]
    return sorted(dict.fromkeys(found), key=lambda each: (each.line, each.column))


def flow_file_warnings(path: Path, *, has_model: bool = True) -> list[PlacedProblem]:
    """Return the parts of a valid file that will not work on this machine as it is. Blocks.

    Args:
        path: the file.
        has_model: whether there is a language model even if the file names none.

    Raises:
        ConfigError: as for `read_flow_file`.
    """
    written = _read(path)
    if written is None:
        return []
    problems = [*environment_problems(written.value)]
    if not has_model:
        problems += _model_problems(FlowFile.model_validate(written.value))
    return [written.locate(each) for each in problems]


def _model_problems(file: FlowFile) -> Iterator[ConfigProblem]:
    """Yield the steps that need a language model, if the file names none."""
    for number, flow in enumerate(file.flows) if file.model is None else ():
        for placed in walk_steps(flow.steps, ("flows", number, "steps")) if flow.enabled else ():
            if placed.step.llm is not None:
                what = f"the step {placed.step.step_id!r} needs a language model, and there is none."
                yield ConfigProblem((*placed.path, "llm"), what, "Name a `model`.")


def _read(path: Path) -> ConfigText | None:
    return read_config_file(path, depth=_DEPTH, max_bytes=_MAX_BYTES, required=True)


def _load(written: ConfigText | None, path: Path, tools: Collection[str]) -> LoadedFlows:
    if written is None:
        raise _empty_file_error(path)
    file, problems = _problems(written, tools)
    if file is None or problems:
        raise written.refusal(problems, advice=_ADVICE)
    variables = dict.fromkeys(_REFERENCE.findall(written.text))
    return LoadedFlows(file, _version(written.value), path, tuple(variables))


def _empty_file_error(path: Path) -> UnreadableConfigError:
    """Return the error for an empty file: an editor may truncate a file before it saves it."""
    advice = "Write {} for a file without flows; `loom-flow-server init` writes one that works."
    return UnreadableConfigError(PlacedProblem(str(path), 1, 1, "the file is empty.", advice))


def _problems(written: ConfigText, tools: Collection[str]) -> tuple[FlowFile | None, list[ConfigProblem]]:
    """Parse a text as far as it is a flow file at all, and return its problems."""
    try:
        json.dumps(written.value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return None, [ConfigProblem((), r"there is a lone surrogate: \ud800 to \udfff come in pairs.")]
    except RecursionError:
        return None, [ConfigProblem((), "it is nested too deeply.")]
    try:
        file = FlowFile.model_validate(written.value)
    except ValidationError as error:
        problems = [*written.problems(error, FlowFile)]
        sound = ValidParts(written.value)
        others = file_problems(sound.file, tools=tools) if sound.file is not None else ()
        return None, [*problems, *(each for each in others if not sound.is_meaningless(each.path))]
    return file, [*file_problems(file, tools=tools)]


def _version(value: Any) -> str:  # noqa: ANN401 - JSON
    canonical = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:_VERSION]


_ENVIRONMENT = "env:"
_ADDRESSES = frozenset({"flow_url", "retrieve_knowledge_url", "url", "endpoint", "operation"})
_WHOLE = re.compile(r"https?://[^/?#{}\s]+", re.IGNORECASE)


def environment_problems(written: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """Return blocked addresses, and environment variables that the file refers to and that are not set."""
    yield from _blocked_address_problems(written)
    told = set[str]()
    for text in texts_in(written, ()):
        reference = reference_in(text.text)
        name = reference.removeprefix(_ENVIRONMENT)
        if name != reference and name not in told and not os.environ.get(name):
            told.add(name)
            yield ConfigProblem(
                text.path,
                f"the environment variable {name} is not set.",
                "Set it in the server's environment.",
            )


def _blocked_address_problems(written: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """Return absolute addresses whose host is blocked by its name alone."""
    from loom_core.net import GuardedClient, NetPolicy

    net = cast("Mapping[str, list[str]]", written.get("net") or {})
    client = GuardedClient(replace(NetPolicy.allowing(net.get("allow", [])), setting="`net.allow`"))
    told = set[str]()
    for text in texts_in(written, ()):
        address = _WHOLE.match(text.text.partition(" ")[2] or text.text)
        if address is None or text.path[-1] not in _ADDRESSES or address[0] in told:
            continue
        told.add(address[0])
        try:
            client.check(address[0])
        except NetError as error:
            yield ConfigProblem(text.path, error.message, error.advice)


_ROUNDS = 20
_PLACEHOLDER_URL = "https://flow.example"
_ANY = {"additionalProperties": True}
_NAMES = {"flows": "flow_id", "skills": "id", "system_tools": "name", "steps": "stepId"}
_PLACEHOLDERS: Mapping[str, Mapping[str, Any]] = {
    "flows": {"endpoint": _PLACEHOLDER_URL, "input_schema": _ANY},
    "skills": {"condition": "?", "action": "?"},
    "system_tools": {"description": "?", "endpoint": _PLACEHOLDER_URL},
    "steps": {"operation": _PLACEHOLDER_URL},
}
_PATTERNS = "trigger_patterns"
_VALUES: Mapping[str, object] = {"flow_url": _PLACEHOLDER_URL, "input_schema": _ANY}
"""Placeholders for invalid parts that others refer to, so that these are not reported as well."""


class ValidParts:
    """A flow file without its invalid parts; only the smallest possible parts are left out.

    A flow, skill, tool or step that is invalid without the wrong part is replaced by a placeholder of the
    same name.

    Attributes:
        file: the remaining file; None if too much is wrong.
    """

    def __init__(self, written: Mapping[str, Any]) -> None:
        self._value: dict[str, Any] = deepcopy(dict(written))
        self._stand_ins = set[ConfigPath]()
        self._gaps = set[ConfigPath]()
        self.file: FlowFile | None = None
        for _ in range(_ROUNDS):  # parts that need the parts left out are left out in the next round
            try:
                self.file = FlowFile.model_validate(self._value)
            except ValidationError as error:
                wrong = {existing_path(self._value, each["loc"]) for each in error.errors(include_url=False)}
                if not all(map(self._leave_out, sorted(wrong, key=len, reverse=True))):
                    return
            else:
                return

    def is_meaningless(self, path: ConfigPath) -> bool:
        """Return whether the problem at a path is only a result of a part that was left out."""
        return path in self._gaps or any(path[: len(part)] == part for part in self._stand_ins)

    def _leave_out(self, path: ConfigPath) -> bool:
        """Leave out a part or replace it by a placeholder; return False if neither is possible."""
        if kind := _kind(path):
            if path in self._stand_ins:
                return False
            self._stand_ins.add(path)
            parts: list[Any] = self._at(path[:-1])
            index = cast("int", path[-1])
            parts[index] = _placeholder_value(kind, parts[index], len(self._stand_ins))
            return True
        if path and isinstance(path[-1], int):  # otherwise the positions of its neighbours would change
            path = path[:-1]
        if not path or path[-1] in _PLACEHOLDERS.keys() - {"steps"} or isinstance(path[-1], int):
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
    """Return the kind of the value at a path, if a placeholder exists for it."""
    match path:
        case (*_, str(key), int()) if key in _PLACEHOLDERS or key == _PATTERNS:
            return key
        case (*_, "parallel", int(), int()):
            return "steps"
        case _:
            return ""


def _placeholder_value(kind: str, part: object, number: int) -> object:
    if kind == _PATTERNS:
        return "x"
    said: Mapping[str, Any] = cast("Mapping[str, Any]", part) if isinstance(part, Mapping) else {}
    name = said.get(_NAMES[kind]) or f"unnamed_{number}"
    stand_in: dict[str, Any] = {**_PLACEHOLDERS[kind], _NAMES[kind]: name}
    outputs = said.get("outputs")
    if isinstance(outputs, Mapping) and kind in {"flows", "steps"}:
        named = cast("Collection[str]", outputs)
        stand_in["outputs"] = dict.fromkeys(named, "$response.body")
    return stand_in


_Stamp: TypeAlias = tuple[int, int, int, int]


class FlowFileWatcher:
    """Watcher of a flow file. If the file becomes invalid, the last valid version stays in use.

    A file that has not changed is not read again. Returned flows never change, so a caller can keep using
    them.

    Args:
        path: the file.
        interval: minimum number of seconds between two checks.
    """

    def __init__(self, path: Path, *, interval: float = 1.0) -> None:
        self._path = path
        self._interval = interval
        self._loaded: LoadedFlows | None = None
        self._stamp: _Stamp | None = None
        self._looked = float("-inf")
        self._problem = ""
        self._lock = anyio.Lock()

    @property
    def problem(self) -> str:
        """The reason why the current file is not used; empty if it is used."""
        return self._problem

    async def latest(self) -> LoadedFlows:
        """Return the current flows, or the last valid ones.

        Raises:
            ConfigError: it is invalid, and no earlier version was valid.
        """
        async with self._lock:
            if self._loaded is not None and time.monotonic() - self._looked < self._interval:
                return self._loaded
            return await to_thread.run_sync(self._poll)

    def _poll(self) -> LoadedFlows:
        self._looked = time.monotonic()
        stamp = _file_stamp(self._path)
        if self._loaded is not None and stamp == self._stamp:
            return self._loaded
        try:
            loaded = read_flow_file(self._path)
        except ConfigError as error:
            if self._loaded is None:
                raise
            self._problem = f"{error} The last valid version stays in use."
            _log.warning("%s", self._problem)
            loaded = self._loaded
        else:
            if self._problem or (self._loaded and loaded.version != self._loaded.version):
                _log.info("%s was reloaded.", self._path)
            self._problem = ""
            if self._loaded is not None and loaded.version == self._loaded.version:
                loaded = self._loaded
            else:
                for warning in flow_file_warnings(self._path):
                    _log.warning("%s", warning)
        self._loaded, self._stamp = loaded, stamp
        return loaded


def _file_stamp(path: Path) -> _Stamp | None:
    """Return a stamp that changes whenever the file does; None if it does not exist."""
    try:
        stat = path.stat()
    except OSError:
        return None
    return (stat.st_mtime_ns, stat.st_ctime_ns, stat.st_size, stat.st_ino)
