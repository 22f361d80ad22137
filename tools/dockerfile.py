"""Parser of a Dockerfile and a .dockerignore, for the syntax that Loom uses; refuses any other.

The meaning is that of Docker's reference: lines that end in a backslash go on, comments between them are no
part of the instruction, variables of ARG and ENV are put into instructions that no shell reads.
"""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath

__all__ = ["Instruction", "Stage", "assignments", "context_files", "expand", "read_stages"]

_KNOWN = {
    "ARG", "CMD", "COPY", "ENTRYPOINT", "ENV", "EXPOSE", "FROM", "HEALTHCHECK", "LABEL", "RUN", "STOPSIGNAL",
    "USER", "VOLUME", "WORKDIR",
}  # fmt: skip
_FLAG = re.compile(r"--([a-z-]+)=(\S+)\s+")
_VARIABLE = re.compile(r"\$(?:\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    Attributes:
        name: in capitals.
        value: what stands behind its flags.
        flags: each with its value, such as `("from", "build")`.
        line: where it begins.
    """

    name: str
    value: str
    flags: tuple[tuple[str, str], ...]
    line: int

    def flag(self, name: str) -> str:
        """Return the value of a flag, or nothing."""
        return dict(self.flags).get(name, "")

    def words(self) -> list[str]:
        """Return the value of an instruction in exec form, a JSON array.

        Raises:
            ValueError: it is not in that form.
        """
        if not self.value.startswith("["):
            raise ValueError(f"line {self.line}: {self.name} is not in exec form")
        return [str(word) for word in json.loads(self.value)]


@dataclass(frozen=True, slots=True)
class Stage:
    """A stage of the build.

    Attributes:
        name: what later stages call it; empty if nothing.
        base: the image that it begins with.
        instructions: what follows.
    """

    name: str
    base: str
    instructions: list[Instruction] = field(default_factory=list[Instruction])

    def last(self, name: str) -> Instruction:
        """Return the last instruction of this name, which is the effective one.

        Raises:
            ValueError: there is none.
        """
        found = [each for each in self.instructions if each.name == name]
        if not found:
            raise ValueError(f"the stage has no {name}")
        return found[-1]


def read_stages(text: str, arguments: Mapping[str, str]) -> list[Stage]:
    """Return the stages of a Dockerfile.

    Args:
        text: the file.
        arguments: what `--build-arg` would give.

    Raises:
        ValueError: it holds what is not known here.
    """
    stages: list[Stage] = []
    before: dict[str, str] = {}  # what is said before the first stage holds in FROM alone
    for instruction in _instructions(text):
        if instruction.name == "FROM":
            base, _, name = expand(instruction.value, before).partition(" AS ")
            stages.append(Stage(name.strip(), base.strip()))
        elif stages:
            stages[-1].instructions.append(instruction)
        elif instruction.name == "ARG":
            name, _, default = instruction.value.partition("=")
            before[name] = arguments.get(name, default)
        else:
            raise ValueError(f"line {instruction.line}: {instruction.name} before FROM")
    return stages


def expand(text: str, variables: Mapping[str, str]) -> str:
    """Expand the variables in a text; an unset one is empty."""
    return _VARIABLE.sub(lambda found: variables.get(found[1] or found[2], ""), text)


def context_files(folder: Path) -> Iterator[str]:
    """Return the files of the build context, as paths in the folder: all but those in .dockerignore."""
    lines = (folder / ".dockerignore").read_text(encoding="utf-8").splitlines()
    rules = [line.strip() for line in lines if line.strip() and not line.startswith("#")]
    for place, folders, files in os.walk(folder):
        inside = Path(place).relative_to(folder)
        folders[:] = [name for name in folders if _may_hold((inside / name).as_posix(), rules)]
        for name in files:
            path = (inside / name).as_posix()
            if not _is_ignored(path, rules):
                yield path


def _instructions(text: str) -> Iterator[Instruction]:
    open_lines: list[str] = []
    began = 0
    for number, line in enumerate(text.splitlines(), start=1):
        if line.lstrip().startswith("#") or (not line.strip() and not open_lines):
            continue
        began = began if open_lines else number
        open_lines.append(line.rstrip().removesuffix("\\"))
        if not line.rstrip().endswith("\\"):
            yield _instruction("\n".join(open_lines), began)
            open_lines = []
    if open_lines:
        raise ValueError(f"line {began}: the instruction does not end")


def _instruction(text: str, line: int) -> Instruction:
    name, _, value = text.strip().partition(" ")
    if name not in _KNOWN:
        raise ValueError(f"line {line}: {name} is not known here")
    flags: list[tuple[str, str]] = []
    value = value.lstrip()
    while found := _FLAG.match(value):
        flags.append((found[1], found[2]))
        value = value[found.end() :]
    shell = name in {"RUN", "CMD", "ENTRYPOINT", "HEALTHCHECK"}
    return Instruction(name, value.replace("\n", "") if shell else " ".join(value.split()), (*flags,), line)


def assignments(instruction: Instruction, variables: Mapping[str, str]) -> dict[str, str]:
    """Return the assignments of an ENV or a LABEL."""
    pairs = (word.partition("=") for word in shlex.split(instruction.value))
    return {name: expand(value, variables) for name, _, value in pairs}


def _is_ignored(path: str, rules: list[str]) -> bool:
    """Return whether the last rule for a path, or for a folder above it, excludes it."""
    places = [path, *(str(folder) for folder in PurePosixPath(path).parents)]
    ignored = False
    for rule in rules:
        if any(_fits(rule.removeprefix("!"), place) for place in places):
            ignored = not rule.startswith("!")
    return ignored


def _may_hold(folder: str, rules: list[str]) -> bool:
    """Return whether a folder may have files in the context: itself, or by a rule with `!`."""
    inside = f"{folder}/"
    return not _is_ignored(folder, rules) or any(rule.startswith(f"!{inside}") for rule in rules)


def _fits(pattern: str, path: str) -> bool:
    parts = (
        ".*" if part == "**/" else "[^/]*" if part == "*" else re.escape(part)
        for part in re.split(r"(\*\*/|\*)", pattern)
    )
    return re.fullmatch("".join(parts), path) is not None
