"""The configuration file of the agents: `agent.json`, JSON with comments and trailing commas.

{
"profiles": {
"default": { "model": "deepseek", "tools": { "files": { "root": "~/notes" } } },
"研究": { "model": "openai", "mcp": { "servers": ["browser"] }, "budget": { "cost": 0.5 } }
}
}
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field

from loom_agent.profiles.profile_config import ProfileConfig, SchedulerConfig
from loom_agent.profiles.team_checks import find_team_problem
from loom_core.config_file import read_config_file
from loom_core.errors import NotFoundError
from loom_core.knowledge.text.control_characters import CONTROL_CHARACTERS

if TYPE_CHECKING:
    from pathlib import Path

    from loom_core.config_file import ConfigText

__all__ = ["DEFAULT", "DEMONSTRATION", "AgentConfig", "AgentFile", "json_schema", "read_agent_file"]

DEFAULT = "default"
"""Name of the default profile, if the file has it; otherwise the first profile of the file is the default."""

DEMONSTRATION = "demonstration"
"""The only profile if there is no file and the model is the demonstration.

Its name is reserved, so that no other process continues its runs with a model that costs money."""

_MAX_BYTES = 4 << 20
_MAX_NAME = 64
_DEPTH = 8
_REFERENCE = re.compile(r"\benv:([A-Za-z_]\w*)")
_ADVICE = "Correct it there; docs/reference/agent-config.md has every key."


class AgentConfig(BaseModel):
    """Content of the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    profiles: dict[str, ProfileConfig] = Field(
        default={}, description="Kinds of agents by name: 1 to 64 characters of any script."
    )
    scheduler: SchedulerConfig = SchedulerConfig()


@dataclass(frozen=True, slots=True)
class AgentFile:
    """The loaded configuration.

    Attributes:
        profiles: the profiles by name, in order; at least one.
        default: name of the default profile.
        variables: environment variables that the file refers to.
        scheduler: limits for concurrent tool calls.
    """

    profiles: Mapping[str, ProfileConfig]
    default: str
    variables: tuple[str, ...] = ()
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)

    def profile(self, name: str) -> ProfileConfig:
        """Return a profile by name; the default one for an empty name.

        Raises:
            NotFoundError: there is none.
        """
        found = self.profiles.get(name or self.default)
        if found is None:
            near = difflib.get_close_matches(name, self.profiles, n=1)
            meant = f"Did you mean {near[0]!r}? " if near else ""
            if name == DEMONSTRATION:
                meant = "It belongs to --provider mock, a demonstration without a model. "
            raise NotFoundError(
                f"There is no profile {name[:200]!r}.",
                advice=f"{meant}There are: {', '.join(self.profiles)}.",
            )
        return found

    def answers_with_data(self, name: str) -> bool:
        """Whether a profile can answer by a schema: a composition cannot if its output is that of several.

        Raises:
            NotFoundError: there is no such profile.
        """
        profile = self.profile(name)
        last = profile.last_members if profile.composition else ()
        if len(last) > 1 and not profile.is_answered_by_one:
            return False
        return all(map(self.answers_with_data, last))

    def list_team(self, name: str) -> list[str]:
        """List the names of a profile, and of all profiles that it uses itself or through others.

        Raises:
            NotFoundError: there is no such profile.
        """
        names = [name or self.default]
        for each in names:
            members = dict.fromkeys(self.profile(each).members.values())
            names += [member for member in members if member not in names]
        return names


def read_agent_file(path: Path, *, required: bool = False, provider: str = "") -> AgentFile:
    """Read the configuration; without a file, return one profile with the defaults. Blocks.

    Args:
        path: the file.
        required: whether the file must exist.
        provider: the language model of profiles without one; without a file, it decides the profile's name.

    Raises:
        ConfigError: it cannot be read, or is invalid; the message says where and why.
    """
    written = read_config_file(path, depth=_DEPTH, max_bytes=_MAX_BYTES, required=required)
    if written is None:
        return _without_file(provider, SchedulerConfig())
    config = _validate(written)
    profiles, scheduler = config.profiles, config.scheduler
    if not profiles:
        return _without_file(provider, scheduler)
    variables = dict.fromkeys(_REFERENCE.findall(written.text))
    default = DEFAULT if DEFAULT in profiles else next(iter(profiles))
    return AgentFile(profiles, default, tuple(variables), scheduler)


def _without_file(provider: str, scheduler: SchedulerConfig) -> AgentFile:
    name = DEMONSTRATION if provider == "mock" else DEFAULT
    return AgentFile({name: ProfileConfig()}, name, scheduler=scheduler)


def _validate(written: ConfigText) -> AgentConfig:
    config = written.validate(AgentConfig, advice=_ADVICE)
    for name in config.profiles:
        if not name.strip() or len(name) > _MAX_NAME or CONTROL_CHARACTERS.search(name):
            raise written.to_error(
                ("profiles", name),
                "this is not a valid name of a profile.",
                f"Use 1 to {_MAX_NAME} characters of any script.",
            )
    if problem := find_team_problem(config.profiles):
        raise written.to_error(problem.path, problem.message, problem.advice)
    return config


def json_schema() -> dict[str, Any]:
    """Return the JSON Schema of the configuration, for editors."""
    schema = AgentConfig.model_json_schema()
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "agent.json", **schema}
