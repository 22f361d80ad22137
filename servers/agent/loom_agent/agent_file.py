"""The file that says which agents there are: `agent.json`, JSON with comments and trailing commas.

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
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from loom_agent.profile_config import ProfileConfig
from loom_core.errors import ConfigError, NotFoundError, UnreadableTextError
from loom_core.jsonc import read_config
from loom_core.knowledge.visible import ACTING
from loom_core.llm.json_schema.values import readable_path

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from loom_core.jsonc import JsonNode

__all__ = ["DEFAULT", "DEMONSTRATION", "AgentConfig", "AgentFile", "read_agent_file"]

DEFAULT = "default"
"""The profile of who names none, if there is one of this name; otherwise the first of the file."""

DEMONSTRATION = "demonstration"
"""The only profile where there is no file and the model is the demonstration.

It has a name of its own, so that no other process goes on with its runs with a model that costs money."""

_MAX_BYTES = 4 << 20
_MAX_NAME = 64
_MOST_TOLD = 3
_DEPTH = 8
_REFERENCE = re.compile(r"\benv:([A-Za-z_]\w*)")
_SHOULD = re.compile(
    r"(?:Input|String|Tuple|Dictionary|Value|List) (should .*?)(?: (?:after|or instance of) .*)?$"
)
_ADVICE = "Correct it there; docs/reference/agent-config.md has every key."


class AgentConfig(BaseModel):
    """What stands in the file."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    profiles: dict[str, ProfileConfig] = Field(
        default={}, description="Kinds of agents by name: 1 to 64 characters of any script."
    )


@dataclass(frozen=True, slots=True)
class AgentFile:
    """What the configuration says.

    Attributes:
        profiles: by name, in their order; at least one.
        default: the name of that which is meant where none is named.
        variables: environment variables that the file refers to.
    """

    profiles: Mapping[str, ProfileConfig]
    default: str
    variables: tuple[str, ...] = ()

    def profile(self, name: str) -> ProfileConfig:
        """The profile of a name; of the default one, if it is empty.

        Raises:
            NotFoundError: there is none.
        """
        found = self.profiles.get(name or self.default)
        if found is None:
            near = difflib.get_close_matches(name, self.profiles, n=1)
            meant = f"Did you mean {near[0]!r}? " if near else ""
            if name == DEMONSTRATION:
                meant = "It is that of --provider mock, which shows everything without a model. "
            raise NotFoundError(
                f"There is no profile {name[:200]!r}.",
                advice=f"{meant}There are: {', '.join(self.profiles)}.",
            )
        return found


def read_agent_file(path: Path, *, required: bool = False, provider: str = "") -> AgentFile:
    """What a configuration says; without a file, one profile of which nothing is said. Blocks.

    Args:
        path: the file.
        required: whether it has to be there.
        provider: the language model of profiles that name none; it gives the only one its name.

    Raises:
        ConfigError: it cannot be read, or is no such configuration; the message says where and why.
    """
    text, root = read_config(path, depth=_DEPTH, required=required, most_bytes=_MAX_BYTES)
    profiles = None if root is None else _Reading(path, text, root).profiles()
    if not profiles:
        return _without_file(provider)
    variables = dict.fromkeys(_REFERENCE.findall(text))
    return AgentFile(profiles, DEFAULT if DEFAULT in profiles else next(iter(profiles)), tuple(variables))


def _without_file(provider: str) -> AgentFile:
    name = DEMONSTRATION if provider == "mock" else DEFAULT
    return AgentFile({name: ProfileConfig()}, name)


class _Reading:
    """A configuration whose text is JSON, being read."""

    def __init__(self, path: Path, text: str, root: JsonNode) -> None:
        self._path = path
        self._text = text
        self._root = root

    def profiles(self) -> Mapping[str, ProfileConfig]:
        """The profiles.

        Raises:
            ConfigError: something is wrong; it names the first places.
        """
        try:
            config = AgentConfig.model_validate(self._root.value)
        except ValidationError as error:
            raise ConfigError(" ".join(self._told(error)), advice=_ADVICE) from None
        for name in config.profiles:
            if not name.strip() or len(name) > _MAX_NAME or ACTING.search(name):
                where = self._where(("profiles", name))
                raise ConfigError(
                    f"{where}: a profile cannot be called so.",
                    advice=f"Use 1 to {_MAX_NAME} characters of any script.",
                )
        return config.profiles

    def _told(self, error: ValidationError) -> Iterator[str]:
        found = error.errors(include_url=False, include_context=False, include_input=False)
        places: dict[tuple[str | int, ...], ErrorDetails] = {}
        for detail in found:  # of the branches of a choice, the first says enough
            places.setdefault(self._stands(detail["loc"]), detail)
        for path, detail in list(places.items())[:_MOST_TOLD]:
            reason = detail["msg"].removeprefix("Value error, ").rstrip(".")
            name = readable_path(path)
            if detail["type"] == "extra_forbidden":
                yield f"{self._where(path)}: {name} is not known here.{_near(path)}"
            elif detail["type"] == "missing":
                yield f"{self._where(path)}: {name} lacks {detail['loc'][-1]!r}."
            elif should := _SHOULD.match(reason):
                wanted = should[1].replace("valid dictionary", "object").replace("a valid", "a")
                yield f"{self._where(path)}: {name} {wanted.replace('a object', 'an object')}."
            else:
                yield f"{self._where(path)}: {name}: {reason}."

    def _stands(self, path: Sequence[str | int]) -> tuple[str | int, ...]:
        """As much of a path as is in the file: Pydantic names the branches of a choice, too."""
        value: Any = self._root.value
        stands: list[str | int] = []
        for part in path:
            try:
                value = value[part]
            except (KeyError, IndexError, TypeError):
                break
            stands.append(part)
        return tuple(stands)

    def _where(self, path: Sequence[str | int]) -> str:
        at = UnreadableTextError.at(self._text, self._root.place(path), "")
        return f"{self._path}:{at.line}:{at.column}"


def _near(path: Sequence[str | int]) -> str:
    """Which key of the same place may have been meant."""
    model: Any = AgentConfig
    for part in path[:-1]:
        fields: Mapping[str, Any] = getattr(model, "model_fields", {})
        if part in fields:
            model = fields[str(part)].annotation
            model = ProfileConfig if part == "profiles" else model
    known = [*getattr(model, "model_fields", {})]
    near = difflib.get_close_matches(str(path[-1]), known, n=1)
    if near:
        return f" Did you mean {near[0]}?"
    return f" There are: {', '.join(known)}." if known else ""
