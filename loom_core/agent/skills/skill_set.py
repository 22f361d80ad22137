"""The skills of an agent: a list in the system prompt, and two tools that load and read them.

A skill is a folder with `SKILL.md`, which has YAML front matter and instructions (agentskills.io).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

from pydantic import Field

from loom_core.errors import ConfigError, LoomError, NotFoundError
from loom_core.installation import how_to_install
from loom_core.tools.builtin.file_root import FileRoot
from loom_core.tools.builtin.read_file import read_part
from loom_core.tools.builtin.text_file import TextFile
from loom_core.tools.builtin.walk import Walk, display_path
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import ToolOutput
from loom_core.tools.toolbox import is_allowed

if TYPE_CHECKING:
    from loom_core.runs.run import Run
    from loom_core.tools.interface import Tool

__all__ = ["SKILL_TOOLS", "Skill", "SkillSet"]

_SKILL_FILE = "SKILL.md"
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


def _read_skill(folder: Path) -> Skill:
    """Read the front matter of a skill. Blocks. Needs PyYAML."""
    path = folder / _SKILL_FILE
    try:
        root = FileRoot(folder)
        read = TextFile.of(root.read(_SKILL_FILE, most=_MOST_BYTES)[0])
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


SKILL_TOOLS = ("load_skill", "read_skill_file")
"""Names of the tools of agents that have skills."""

_MOST_SKILLS = 200
_LIST_CHARACTERS = 16_000  # of all descriptions in the system prompt; longer ones are cut evenly
# Tokens of a text at once: with the list of files, an output stays below the agents' default of 6,000.
_MOST_TOKENS = 5000
_MOST_FILES = 50
_SECONDS = 5.0

_INTRODUCTION = (
    "Skills are instructions of this agent's operator for certain tasks, unlike results of other tools. If "
    "a task fits one, call `load_skill` before you begin, and follow it and its files (`read_skill_file`). "
    "Load it again if you no longer have it in full."
)


class SkillSet:
    """The skills of an agent.

    The list of names and descriptions is read once. `load_skill` and `read_skill_file` read the current
    files. The skills add no permissions: their scripts run only by a tool that may run them.

    Args:
        skills: the skills by name.
        problems: mistakes in skills; a skill that cannot be used is left out.

    Attributes:
        skills: see above.
        problems: see above.
        tools: `load_skill` and `read_skill_file`; none if there are no skills.
    """

    def __init__(self, skills: Mapping[str, Skill], problems: Iterable[ConfigError] = ()) -> None:
        self.skills = skills
        self.problems = tuple(problems)
        read_only = tool(read_only=True, open_world=False)
        tools = read_only(self.load_skill), read_only(self.read_skill_file)
        self.tools: tuple[Tool, ...] = tools if skills else ()

    @classmethod
    def load(cls, paths: Iterable[str | Path], *, folder: Path | None = None) -> SkillSet:
        """Read the front matter of skills. Blocks.

        Args:
            paths: each is the folder of a skill, a folder of such folders, or a glob pattern of either.
            folder: base of relative paths; by default the working folder.

        Raises:
            ConfigError: there is no skill at one of the paths, usable or not; or PyYAML is not installed.
        """
        skills: dict[str, Skill] = {}
        problems: list[ConfigError] = []
        found = dict.fromkeys(each for path in paths for each in _find(path, folder or Path.cwd()))
        if found and find_spec("yaml") is None:
            raise ConfigError(
                "Skills begin with YAML, and PyYAML is not installed.", advice=how_to_install("pyyaml")
            )
        for place in found:
            try:
                skill = _read_skill(place)
            except ConfigError as error:
                problems.append(error)
                continue
            problems += skill.problems
            if skill.name in skills:
                used = f"{skills[skill.name].root.folder}, which has the same name, {skill.name!r}, is used."
                problems.append(ConfigError(f"{place}: {used}", advice="Rename one of them."))
            elif len(skills) == _MOST_SKILLS:
                why = f"an agent has at most {_MOST_SKILLS} skills."
                problems.append(ConfigError(f"{place}: {why}", advice="Leave some out."))
            else:
                skills[skill.name] = skill
        return cls(skills, problems)

    def instructions(self, run: Run) -> str:
        """Return the list of the skills for the system prompt of a run; empty if it cannot load them."""
        if not self.tools or not is_allowed(self.tools[0], run.request.allowed_tools):
            return ""
        most = _LIST_CHARACTERS // len(self.skills)
        lines = [f"- {skill.name}: {_shorten(skill.description, most)}" for skill in self.skills.values()]
        return "\n".join((_INTRODUCTION, *lines))

    def load_skill(self, name: str) -> ToolOutput:
        """Load a skill: its instructions, and the names of its files.

        Args:
            name: such as `pdf-forms`.
        """
        skill = _read_skill(self._skill(name).root.folder)
        facts = [
            f"Skill `{name}`, in the folder {display_path(str(skill.root.folder))}: paths below are relative "
            "to it, and `read_skill_file` reads them.",
        ]
        if skill.compatibility:
            facts.append(f"Requirements: {skill.compatibility}")
        if skill.allowed_tools:
            facts.append(
                "Tools that it expects, by names that other programs may give them: "
                f"{skill.allowed_tools}. What you may call does not change."
            )
        facts.append(f"Files:\n{_list_files(skill.root, skill.root.folder)}")
        if not skill.first_line:
            return ToolOutput("\n".join([*facts, "It has no instructions besides its description."]))
        body = read_part(skill.root, _SKILL_FILE, skill.first_line, tokens=_MOST_TOKENS).text
        return ToolOutput("\n\n".join(["\n".join(facts), body]))

    def read_skill_file(
        self,
        skill: str,
        path: str = ".",
        start_line: int = 1,
        lines: Annotated[int, Field(ge=1, le=5000)] = 1000,
    ) -> ToolOutput:
        """Read a file of a skill, text or image, or list one of its folders.

        A note at the end says if there is more.

        Args:
            skill: its name.
            path: such as `references/forms.md`.
            start_line: counted from 1; -20 for the last 20 lines.
            lines: how many at most.
        """
        root = self._skill(skill).root
        place = root.locate(path)
        if place.is_dir():
            return ToolOutput(_list_files(root, place))
        return read_part(root, path, start_line, lines, tokens=_MOST_TOKENS)

    def _skill(self, name: str) -> Skill:
        if name in self.skills:
            return self.skills[name]
        near = difflib.get_close_matches(name, self.skills, n=3)
        shown = ", ".join(f"`{each}`" for each in near or list(self.skills)[:10])
        raise NotFoundError(
            f"There is no skill {name[:100]!r}.",
            advice=f"{'Did you mean' if near else 'There are'}: {shown}.",
        )


def _find(path: str | Path, base: Path) -> list[Path]:
    """Return the folders of the skills at a path."""
    found: list[Path] = []
    try:
        whole = (base / Path(path).expanduser()).absolute()
        root = Path(whole.anchor)
        places = [whole] if whole.exists() else sorted(root.glob(str(whole.relative_to(root))))
        for place in places:
            inside = [place.parent if place.name == _SKILL_FILE else place]
            if place.is_dir() and not (place / _SKILL_FILE).exists():
                inside = sorted(place.iterdir())
            found += [each for each in inside if (each / _SKILL_FILE).exists()]
    except (OSError, RuntimeError, ValueError) as error:  # unreadable, without such a home, no pattern
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"Skills cannot be read from {str(path)!r}: {why}.",
            advice="Correct the path, or its permissions.",
        ) from None
    if not found:
        raise ConfigError(
            f"There is no skill at {whole}.",
            advice=f"Name a folder that has {_SKILL_FILE}, or a folder of such folders.",
        )
    return found


def _list_files(root: FileRoot, folder: Path) -> str:
    walk = Walk(root.folder, folder, seconds=_SECONDS)
    names = [f"- {display_path(each.path)}" for each in walk if each.kind == "file"]
    left = len(names) - _MOST_FILES
    more = [f"[{left} more: list a folder by `read_skill_file`]"] if left > 0 else []
    return "\n".join([*names[:_MOST_FILES], *more]) or "[the folder is empty]"


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"
