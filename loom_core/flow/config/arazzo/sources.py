"""The OpenAPI descriptions that an Arazzo document names, and their operations; they are not validated."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from loom_core.errors import ConfigError
from loom_core.jsonc import object_of
from loom_core.llm.json_schema.values import readable_path

__all__ = [
    "METHODS",
    "JsonPart",
    "OpenApiSources",
    "Operation",
    "parse_document",
    "server_of",
    "source_addresses",
]


_PATH = re.compile(r"\{?\$sourceDescriptions\.([^.{}]+)(?:\.url)?\}?#/paths/([^/]+)/([a-z]+)")
METHODS = ("get", "head", "post", "put", "patch", "delete")
"""Methods of requests, as in OpenAPI."""
_SOURCE_ADVICE = "Give the OpenAPI description, too: --source NAME=FILE."


@dataclass(frozen=True, slots=True)
class Operation:
    """Method and path of the request that a step makes.

    Attributes:
        method: in upper case.
        path: with `{name}` for parameters; an absolute address if there are several servers.
    """

    method: str
    path: str


def parse_document(text: str, *, name: str) -> object:
    """Parse a text in JSON or YAML.

    Raises:
        ConfigError: the text is neither, or it is YAML and no parser is installed.
    """
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        pass
    try:
        import yaml
    except ImportError:
        raise ConfigError(
            f"{name} is not JSON, and no YAML parser is installed.", advice="Install the extra `install`."
        ) from None
    try:
        if "*" in text and _has_alias(text):
            raise ConfigError(f"{name} has aliases, such as *this.", advice="Replace them by their values.")
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark: Any = getattr(error, "problem_mark", None)
        where = f"{name}:{mark.line + 1}:{mark.column + 1}" if mark else name
        raise ConfigError(f"{where}: this is neither JSON nor YAML.", advice="Correct it there.") from None


def source_addresses(text: str, *, name: str) -> dict[str, str]:
    """Return the addresses of the descriptions that a document names, by name.

    Raises:
        ConfigError: it is no such document.
    """
    root = JsonPart(parse_document(text, name=name), name=name)
    parts = root.get("sourceDescriptions").items()
    return {each.text("name", required=True): each.text("url") for each in parts}


class OpenApiSources:
    """The OpenAPI descriptions that a document names.

    Args:
        root: the document.
        texts: of the available descriptions, by name.

    Raises:
        ConfigError: a text is no description, or the document does not name it.
    """

    def __init__(self, root: JsonPart, texts: Mapping[str, str]) -> None:
        names = [each.text("name", required=True) for each in root.get("sourceDescriptions").items()]
        if unknown := [name for name in texts if name not in names]:
            raise root.get("sourceDescriptions").error(
                f"does not name {unknown[0]!r}.", f"It names: {', '.join(names) or 'none'}."
            )
        self._names = names
        self._documents = {
            name: JsonPart(parse_document(text, name=name), name=name) for name, text in texts.items()
        }
        self._servers = {name: server_of(document) for name, document in self._documents.items()}
        servers = {server for server in self._servers.values() if server}
        self.flow_url = servers.pop() if len(names) == 1 and len(servers) == 1 else ""
        """Address of the only server, or empty."""

    def operation(self, step: JsonPart) -> Operation:
        """Return the method and path of a step's request.

        Raises:
            ConfigError: the step calls nothing, or an unknown operation.
        """
        if path := step.text("operationPath"):
            found = _PATH.fullmatch(path)
            if not found or found[3] not in METHODS or found[1] not in self._names:
                raise step.get("operationPath").error(
                    "is not an operation of a source.",
                    "An example: {$sourceDescriptions.NAME.url}#/paths/~1orders/post",
                )
            way = found[2].replace("~1", "/").replace("~0", "~")
            return Operation(found[3].upper(), self._address(found[1], way))
        identifier = step.text("operationId", required=True)
        source, _, bare = identifier.removeprefix("$sourceDescriptions.").rpartition(".")
        for name, document in self._documents.items():
            wanted = bare if source == name else identifier
            for way, item in document.get("paths").members().items():
                operations = document.get("paths").at(way, item).members()
                for method in METHODS:
                    if _id_of(operations.get(method)) == wanted:
                        return Operation(method.upper(), self._address(name, way))
        raise step.get("operationId").error(
            f"{identifier[:80]!r} is not in the available sources.", _SOURCE_ADVICE
        )

    def _address(self, name: str, way: str) -> str:
        return way if self.flow_url else self._servers.get(name, "") + way


def _has_alias(text: str) -> bool:
    """Return whether a YAML text has aliases, which can expand without limit."""
    import yaml

    tokens = cast("Iterable[object]", yaml.scan(text))  # pyright: ignore[reportUnknownMemberType]
    return any(isinstance(token, yaml.AliasToken) for token in tokens)


def server_of(document: JsonPart) -> str:
    """Return the address of a description's first server, if it is absolute."""
    for server in document.get("servers").items():
        url = server.text("url").rstrip("/")
        for name in server.get("variables").members():
            url = url.replace(f"{{{name}}}", server.get("variables").get(name).text("default"))
        return url if url.startswith(("https://", "http://")) and "{" not in url else ""
    return ""


def _id_of(operation: object) -> str:
    return str(object_of(operation).get("operationId", ""))


_MAX_LENGTH = 200


class JsonPart:
    """A value in a document, with its path.

    Args:
        value: the value.
        name: name of the document in messages.
        path: its path.
    """

    def __init__(self, value: object, *, name: str, path: tuple[str | int, ...] = ()) -> None:
        self.value = value
        self._name = name
        self._path = path

    def error(self, message: str, advice: str = "Correct it there.") -> ConfigError:
        """Return an error that points at this value."""
        return ConfigError(
            f"{self._name}: {readable_path(self._path)[:_MAX_LENGTH]} {message}", advice=advice
        )

    def at(self, key: str | int, value: object) -> JsonPart:
        """Return a value as a child of this one."""
        return JsonPart(value, name=self._name, path=(*self._path, key))

    def get(self, key: str) -> JsonPart:
        """Return the member of a name; its value is None if it does not exist."""
        return self.at(key, self.members().get(key))

    def members(self) -> Mapping[str, Any]:
        """Return the members of an object; none if the value is None.

        Raises:
            ConfigError: it is not an object.
        """
        if self.value is None:
            return {}
        value: object = self.value
        if not isinstance(value, Mapping):
            raise self.error("should be an object.")
        members = cast("Mapping[Any, Any]", value)
        if not all(isinstance(key, str) for key in members):
            raise self.error("has a name that is not a string.")
        return members

    def items(self) -> Iterator[JsonPart]:
        """Yield the elements of a list; none if the value is None.

        Raises:
            ConfigError: it is no list.
        """
        if self.value is None:
            return
        value: object = self.value
        if not isinstance(value, list):
            raise self.error("should be a list.")
        for index, each in enumerate(cast("list[object]", value)):
            yield self.at(index, each)

    def text(self, key: str, *, required: bool = False) -> str:
        """Return a text member; empty if it does not exist.

        Raises:
            ConfigError: it is no text, or it is required and missing.
        """
        value = self.members().get(key)
        if value is None and not required:
            return ""
        if not isinstance(value, str) or (required and not value):
            raise self.get(key).error("should be a text." if value is not None else "is missing.")
        return value

    def number(self, key: str, otherwise: float) -> float:
        """Return a number member.

        Raises:
            ConfigError: it is no number.
        """
        value = self.members().get(key)
        if value is None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.get(key).error("should be a number.")
        return value
