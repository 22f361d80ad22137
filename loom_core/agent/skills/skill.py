"""Skill: a folder with `SKILL.md`, which has YAML front matter and instructions (agentskills.io)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

from loom_core.errors import ConfigError, LoomError
from loom_core.tools.builtin.file_root import FileRoot
from loom_core.tools.builtin.text_file import TextFile

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

__all__ = ["SKILL_FILE", "Skill", "read_skill"]

SKILL_FILE = "SKILL.md"
"""Name of the file that makes a folder a skill."""

_MOST_BYTES = 1 << 20
_MOST_NAME = 64
_MOST_DESCRIPTION = 1024
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_FRONT_MATTER = re.compile(r"\A---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill, as its front matter describes it.

    Attributes:
        name: its name for models and people.
        description: its purpose, and when to use it; at most 1,024 characters, on one line.
        root: its folder, which its tools do not leave.
        first_line: line of `SKILL.md` where the instructions begin, counted from 1; 0 if there are none.
        allowed_tools: the tools that it expects to be allowed, in the author's words.
        compatibility: its requirements, in the author's words.
        problems: mistakes in it that do not prevent its use.
    """

    name: str
    description: str
    root: FileRoot
    first_line: int
    allowed_tools: str = ""
    compatibility: str = ""
    problems: tuple[ConfigError, ...] = ()


def read_skill(folder: Path) -> Skill:
    """Read the front matter of a skill. Blocks. Needs PyYAML.

    Args:
        folder: the folder that has `SKILL.md`.

    Raises:
        ConfigError: the skill cannot be used; the message says which file, why, and what to do.
    """
    path = folder / SKILL_FILE
    try:
        root = FileRoot(folder)
        read = TextFile.of(root.read(SKILL_FILE, most=_MOST_BYTES)[0])
    except LoomError as error:
        raise ConfigError(f"{path}: {error.message}", advice=error.advice) from None
    match = _FRONT_MATTER.match(read.text) if read else None
    if read is None or match is None:
        raise ConfigError(
            f"{path} does not begin with a front matter.",
            advice="Begin it with `---`, lines with `name:` and `description:`, and `---` again.",
        )
    fields = _parse(match[1], path)
    name = _name(fields.get("name"), path)
    description = _line(fields.get("description"))
    if not description:
        raise ConfigError(
            f"{path}: `description` is missing.", advice="Say what it does, and when to use it."
        )
    problems: list[ConfigError] = []
    if name != folder.name:
        problems.append(
            ConfigError(f"{path}: {name!r} is not the name of its folder.", advice="Rename one of them.")
        )
    if len(description) > _MOST_DESCRIPTION:
        used = f"only {_MOST_DESCRIPTION:,} of {len(description):,} characters of `description` are used."
        problems.append(ConfigError(f"{path}: {used}", advice="Shorten it."))
    return Skill(
        name,
        description[:_MOST_DESCRIPTION],
        root,
        first_line=match[0].count("\n") + 1 if read.text[match.end() :].strip() else 0,
        allowed_tools=_line(fields.get("allowed-tools")),
        compatibility=_line(fields.get("compatibility")),
        problems=tuple(problems),
    )


def _line(given: object) -> str:
    """Return a text, or the texts of a list, on one line; empty for None."""
    texts = cast("list[object]", given) if isinstance(given, list) else [given or ""]
    return " ".join(word for text in texts for word in str(text).split())


def _name(given: object, path: Path) -> str:
    if isinstance(given, str) and len(given) <= _MOST_NAME and _NAME.fullmatch(given):
        return given
    shown = "missing" if given is None else repr(str(given)[: 2 * _MOST_NAME])
    raise ConfigError(
        f"{path}: `name` is {shown}.",
        advice=f"Use 1 to {_MOST_NAME} of a-z, 0-9 and single hyphens, such as that of the folder.",
    )


def _parse(front_matter: str, path: Path) -> Mapping[str, Any]:
    import yaml

    try:
        fields: object = yaml.safe_load(front_matter)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark: Any = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 2}:{mark.column + 1}" if mark else str(path)
        why = getattr(error, "problem", None) or "it cannot be read"
        raise ConfigError(
            f"{where}: the front matter is not YAML: {why}.",
            advice="Correct it there; put a text with `: ` in it into quotes.",
        ) from None
    if not isinstance(fields, dict):
        raise ConfigError(
            f"{path}: the front matter has no fields.", advice="Give it `name:` and `description:`."
        )
    return cast("Mapping[str, Any]", fields)
