"""Configuration files: JSON with comments, checked against a Pydantic model, errors with line and column."""

from __future__ import annotations

import difflib
import re
import types
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias, TypeVar, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from loom_core.errors import ConfigError, UnreadableTextError
from loom_core.jsonc import JsonReader
from loom_core.llm.json_schema.values import readable_path

if TYPE_CHECKING:
    from pathlib import Path

    from pydantic_core import ErrorDetails

    from loom_core.jsonc import JsonNode

__all__ = [
    "ConfigPath",
    "ConfigProblem",
    "ConfigText",
    "PlacedProblem",
    "UnreadableConfigError",
    "existing_path",
    "plain_reason",
    "read_config_file",
]

ConfigPath: TypeAlias = tuple[str | int, ...]
"""Keys and list indices that lead to a value."""

_MAX_LISTED = 3
_MAX_NAME_LENGTH = 200
_SHOULD = re.compile(
    r"(?:Input|String|Tuple|Dictionary|Value|List) (should .*?)(?: (?:after|or instance of) .*)?$"
)
_ARTICLE = re.compile(r"\ba(?: valid)?(?= (\w))")
_VOWELS = "aeiou"

_ModelT = TypeVar("_ModelT", bound=BaseModel)


@dataclass(frozen=True, slots=True)
class ConfigProblem:
    """A problem in a configuration, with its path.

    Attributes:
        path: its path in the file; the part of it that exists.
        message: the problem, in a sentence.
        advice: what to do about it; may be empty.
    """

    path: ConfigPath
    message: str
    advice: str = ""


@dataclass(frozen=True, slots=True)
class PlacedProblem:
    """A problem in a file, with line and column.

    Attributes:
        file: name of the file in messages.
        line: line, counted from 1; 0 for the whole file, which the message then names.
        column: column, likewise.
        message: the problem, in a sentence.
        advice: what to do about it; may be empty.
    """

    file: str
    line: int
    column: int
    message: str
    advice: str = ""

    def __str__(self) -> str:
        return f"{self.text} {self.advice}".rstrip()

    @property
    def text(self) -> str:
        """The position and the problem."""
        return f"{self.file}:{self.line}:{self.column}: {self.message}" if self.line else self.message


class UnreadableConfigError(ConfigError):
    """A configuration is missing, cannot be read, or is not JSON.

    Attributes:
        problem: the reason, with its position.
    """

    def __init__(self, problem: PlacedProblem) -> None:
        super().__init__(problem.text, advice=problem.advice)
        self.problem = problem


class ConfigText:
    """A configuration in JSON, with the position of every value.

    Args:
        text: the text.
        root: the parsed value.
        name: name of the file in messages.
        line: line of the file where the text begins, counted from 1.

    Attributes:
        text: the text.
        line: as given.
    """

    def __init__(self, text: str, root: JsonNode, *, name: str, line: int = 1) -> None:
        self.text = text
        self.line = line
        self._root = root
        self._name = name

    @classmethod
    def of(cls, text: str, *, name: str, depth: int, line: int = 1) -> ConfigText | None:
        """Parse a text; None for an empty one.

        Args:
            text: JSON with comments and trailing commas.
            name: name of the file in messages.
            depth: number of levels whose values have positions, and whose names must be unique.
            line: line of the file where the text begins.

        Raises:
            UnreadableConfigError: the text is invalid.
        """
        try:
            root = JsonReader(depth=depth).read(text)
        except UnreadableTextError as error:
            at = error.line + line - 1
            raise UnreadableConfigError(
                PlacedProblem(name, at, error.column, f"{error.reason}.", "Correct it there.")
            ) from None
        return None if root is None else cls(text, root, name=name, line=line)

    @classmethod
    def of_lines(cls, text: str, *, name: str, depth: int) -> Iterator[ConfigText]:
        """Parse JSON Lines: yield each line that is not empty, nor only a comment.

        Args:
            text: an object in each line.
            name: as for `of`, as the next one.
            depth: as for `of`.

        Raises:
            UnreadableConfigError: a line is invalid.
        """
        for number, line in enumerate(text.split("\n"), 1):
            if (written := cls.of(line, name=name, depth=depth, line=number)) is not None:
                yield written

    @property
    def value(self) -> Any:  # noqa: ANN401 - JSON
        """The parsed value."""
        return self._root.value

    def where(self, path: Sequence[str | int]) -> str:
        """`file:line:column` of the value at a path, or of the longest part of the path that exists."""
        at = self._at(path)
        return f"{self._name}:{at.line}:{at.column}"

    def locate(self, problem: ConfigProblem) -> PlacedProblem:
        """Locate a problem: add its line and column."""
        at = self._at(problem.path)
        return PlacedProblem(self._name, at.line, at.column, problem.message, problem.advice)

    def _at(self, path: Sequence[str | int]) -> UnreadableTextError:
        at = UnreadableTextError.at(self.text, self._root.place(path), "")
        return UnreadableTextError("", line=at.line + self.line - 1, column=at.column)

    def to_error(self, path: Sequence[str | int], message: str, advice: str) -> ConfigError:
        """Build the error for a problem, with its position."""
        return ConfigError(f"{self.where(path)}: {message}", advice=advice)

    def validate(self, model: type[_ModelT], *, advice: str) -> _ModelT:
        """Validate the value as a model.

        Args:
            model: the model to validate against.
            advice: how to fix an invalid value.

        Raises:
            ConfigError: the value is invalid; the message names the first problems.
        """
        try:
            return model.model_validate(self.value)
        except ValidationError as error:
            raise self.refusal(self.problems(error, model), advice=advice) from None

    def refusal(self, problems: Iterable[ConfigProblem], *, advice: str) -> ConfigError:
        """Build the error for some problems: it names the first, with its advice."""
        told = list(problems)
        message = " ".join(f"{self.where(each.path)}: {each.message}" for each in told[:_MAX_LISTED])
        return ConfigError(message, advice=told[0].advice or advice)

    def problems(self, error: ValidationError, model: type[BaseModel]) -> Iterator[ConfigProblem]:
        """Yield the problems that a model has with the value: one for each place."""
        found = error.errors(include_url=False, include_context=False, include_input=False)
        places: dict[ConfigPath, ErrorDetails] = {}
        for detail in found:  # for a union, the error of the first branch is enough
            places.setdefault(existing_path(self.value, detail["loc"]), detail)
        for path, detail in places.items():
            yield ConfigProblem(path, _describe(path, detail, model))


def read_config_file(
    path: Path,
    *,
    depth: int,
    max_bytes: int,
    required: bool = False,
    too_large: str = "It is not a configuration file.",
) -> ConfigText | None:
    """Read a server's configuration; None if it is empty, or there is no file. Blocks.

    Args:
        path: the file.
        depth: as for `ConfigText.of`.
        max_bytes: maximum size of the file.
        required: whether the file must exist.
        too_large: advice for a larger file.

    Raises:
        UnreadableConfigError: it is missing, cannot be read, or is invalid; the message says where and why.
    """

    def unreadable(message: str, advice: str) -> UnreadableConfigError:
        return UnreadableConfigError(PlacedProblem(str(path), 0, 0, message, advice))

    try:
        if path.stat().st_size > max_bytes:
            raise unreadable(f"{path} is larger than {max_bytes >> 20} MB.", too_large)
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        if required:
            raise unreadable(f"There is no file {path}.", "Check --config.") from None
        return None
    except UnicodeDecodeError:
        raise unreadable(f"{path} cannot be read: it is not UTF-8.", "Save it as UTF-8.") from None
    except OSError as error:
        raise unreadable(f"{path} cannot be read: {error.strerror}.", "Make it readable.") from None
    return ConfigText.of(text, name=str(path), depth=depth)


def existing_path(value: object, path: Sequence[str | int]) -> ConfigPath:
    """Return the parts of a path that exist in a value; Pydantic also adds the branches of a union."""
    at: Any = value
    standing: list[str | int] = []
    for part in path:
        try:
            at = at[part]
        except (KeyError, IndexError, TypeError):
            continue
        standing.append(part)
    return tuple(standing)


def plain_reason(detail: ErrorDetails) -> str:
    """Return Pydantic's reason in plain words, without a full stop at its end."""
    reason = detail["msg"].removeprefix("Value error, ").rstrip(".")
    should = _SHOULD.match(reason)
    if should is None:
        return reason
    reason = should[1].replace("valid dictionary", "object")
    return _ARTICLE.sub(lambda found: "an" if found[1] in _VOWELS else "a", reason)


def _describe(path: ConfigPath, detail: ErrorDetails, model: type[BaseModel]) -> str:
    reason = plain_reason(detail)
    name = readable_path(path)[:_MAX_NAME_LENGTH] if path else "it"
    if detail["type"] == "extra_forbidden":
        return f"{name} is not known here.{_near(path, model)}"
    if detail["type"] == "missing":
        return f"{name} lacks {detail['loc'][-1]!r}."
    if reason.startswith("should "):
        return f"{name} {reason}."
    return f"{name}: {reason}." if path else f"{reason}."


def _near(path: ConfigPath, model: type[BaseModel]) -> str:
    """Suggest a similar key of the same object."""
    if not path:
        return ""
    kinds: list[Any] = [model]
    for part in path[:-1]:
        kinds = [below for kind in kinds for each in _branches(kind) for below in _below(each, part)]
    branches = [each for kind in kinds for each in _branches(kind) if _is_model(each)]
    known = dict.fromkeys(field.alias or name for each in branches for name, field in _fields(each))
    near = difflib.get_close_matches(str(path[-1]), known, n=1)
    if near:
        return f" Did you mean {near[0]}?"
    return f" There are: {', '.join(known)}." if known else ""


def _branches(kind: Any) -> list[Any]:  # noqa: ANN401 - a type annotation
    """Return the types that a value of an annotation may have."""
    origin = get_origin(kind)
    if origin is Annotated:
        return _branches(get_args(kind)[0])
    if origin in {Union, types.UnionType}:
        return [branch for each in get_args(kind) for branch in _branches(each)]
    return [kind]


def _below(kind: Any, part: str | int) -> list[Any]:  # noqa: ANN401 - a type annotation
    """Return the types of a value of an annotation under a key, or at an index of a list."""
    if _is_model(kind):
        return [field.annotation for name, field in _fields(kind) if part in {name, field.alias}]
    origin, inner = get_origin(kind), get_args(kind)
    if isinstance(part, int):
        return [inner[0]] if origin in {list, tuple, Sequence} and inner else []
    return [inner[1]] if origin in {dict, Mapping} and len(inner) > 1 else []


def _is_model(kind: Any) -> bool:  # noqa: ANN401 - a type annotation
    return isinstance(kind, type) and issubclass(kind, BaseModel)


def _fields(model: type[BaseModel]) -> Iterable[tuple[str, Any]]:
    return model.model_fields.items()
