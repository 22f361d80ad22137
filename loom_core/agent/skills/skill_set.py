"""The skills of an agent: a list in the system prompt, and two tools that load and read them."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from pydantic import Field

from loom_core.agent.skills.skill import SKILL_FILE, Skill, read_skill
from loom_core.errors import ConfigError, NotFoundError
from loom_core.installation import how_to_install
from loom_core.tools.builtin.read_file import read_part
from loom_core.tools.builtin.walk import Walk, display_path
from loom_core.tools.function_tool import tool
from loom_core.tools.interface import ToolOutput
from loom_core.tools.toolbox import is_allowed

if TYPE_CHECKING:
    from loom_core.runs.run import Run
    from loom_core.tools.builtin.file_root import FileRoot
    from loom_core.tools.interface import Tool

__all__ = ["SKILL_TOOLS", "SkillSet"]

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
                skill = read_skill(place)
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
        skill = read_skill(self._skill(name).root.folder)
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
        body = read_part(skill.root, SKILL_FILE, skill.first_line, tokens=_MOST_TOKENS).text
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
    """Return the folders of the skills at a path.

    Raises:
        ConfigError: there are none.
    """
    found: list[Path] = []
    try:
        whole = (base / Path(path).expanduser()).absolute()
        root = Path(whole.anchor)
        places = [whole] if whole.exists() else sorted(root.glob(str(whole.relative_to(root))))
        for place in places:
            inside = [place.parent if place.name == SKILL_FILE else place]
            if place.is_dir() and not (place / SKILL_FILE).exists():
                inside = sorted(place.iterdir())
            found += [each for each in inside if (each / SKILL_FILE).exists()]
    except (OSError, RuntimeError, ValueError) as error:  # unreadable, without such a home, no pattern
        why = getattr(error, "strerror", None) or error
        raise ConfigError(
            f"Skills cannot be read from {str(path)!r}: {why}.",
            advice="Correct the path, or its permissions.",
        ) from None
    if not found:
        raise ConfigError(
            f"There is no skill at {whole}.",
            advice=f"Name a folder that has {SKILL_FILE}, or a folder of such folders.",
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
