"""Expansion of variables and secrets in a server's entry.

`${VAR}` is an environment variable, `${VAR:-default}` one that may be unset or empty. Inserted values are not
expanded again. A whole value of `env` or `headers` may also be `env:NAME` or `keyring:NAME`, as
keys are written elsewhere in Loom, in a header with a scheme in front: `Bearer keyring:NAME`.

Only entries that the user has written, or has reviewed and trusted, may be expanded: a file of another person
could send any variable anywhere.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NoReturn

from pydantic import SecretStr

from loom_core.errors import ConfigError
from loom_core.keys import check_reference, register_secret, resolve

__all__ = ["Expansion", "is_secret_name", "variables_of"]

_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)(?::-([^{}]*))?\}")
_FOREIGN = re.compile(r"\$\{(command|config|env|input|keyring|userInput):([^{}]*)\}")
_REFERENCE = re.compile(r"((?i:Basic|Bearer|Token) +)?((?:env|keyring):\S+)")
_SECRET_NAME = re.compile(r"auth|cookie|credential|key|passw|pwd|secret|token", re.IGNORECASE)


def is_secret_name(name: str) -> bool:
    """Return whether a name is likely that of a secret, such as `GITHUB_TOKEN` or `X-Api-Key`."""
    return _SECRET_NAME.search(name) is not None


def variables_of(text: str, *, needed: bool = True) -> list[str]:
    """Return the environment variables that a value of `env` or `headers` uses.

    Args:
        text: as it is written.
        needed: only those that must be set; otherwise those with a default, too.
    """
    reference = _REFERENCE.fullmatch(text)
    if reference and reference[2].startswith("env:"):
        return [reference[2].removeprefix("env:")]
    return [match[1] for match in _VARIABLE.finditer(text) if match[2] is None or not needed]


class Expansion:
    """Expander for the texts of one entry; it remembers the secrets that it has inserted.

    Args:
        variables: the environment.
        keyring: whether the keyring is read, which may take a while and show the user a prompt. Without it,
            each of its values is `…`, which is enough for a display.
    """

    def __init__(self, variables: Mapping[str, str], *, keyring: bool = True) -> None:
        self._variables = variables
        self._keyring = keyring
        self.secrets: list[SecretStr] = []

    def text(self, text: str) -> str:
        """Expand the variables of a text.

        Raises:
            ConfigError: a variable is not set and has no default, or is in the syntax of another program.
        """
        if foreign := _FOREIGN.search(text):
            _refuse(foreign)
        return _VARIABLE.sub(self._value, text)

    def secret(self, text: str) -> str:
        """Expand a value of `env` or `headers`, which may be a reference. Blocks if it reads the keyring.

        Raises:
            ConfigError: as for `text`; or the referenced secret does not exist.
        """
        reference = _REFERENCE.fullmatch(text)
        if reference is None:
            return self.text(text)
        place, _, name = check_reference(reference[2]).partition(":")
        if place == "env":
            value = self._lookup(name, None)
        elif self._keyring:
            value = resolve(reference[2]).get_secret_value()
        else:
            return "…"
        self.secrets.append(register_secret(SecretStr(value)))
        return f"{reference[1] or ''}{value}"

    def _value(self, match: re.Match[str]) -> str:
        return self._lookup(match[1], match[2])

    def _lookup(self, name: str, default: str | None) -> str:
        value = self._variables.get(name)
        if default is not None and not value:
            return default
        if value is None:
            raise ConfigError(
                f"The variable {name} is not set.",
                advice=f"Set it where this program is started, or write ${{{name}:-default}}.",
            )
        if is_secret_name(name):
            self.secrets.append(register_secret(SecretStr(value)))
        return value


def _refuse(foreign: re.Match[str]) -> NoReturn:
    kind, name = foreign[1], foreign[2]
    advice = {
        "env": f"Write ${{{name}}}.",
        "keyring": f"Write keyring:{name} as the whole value of a variable or a header.",
    }
    raise ConfigError(
        f"{foreign[0]} is how other programs write it, and is not understood here.",
        advice=advice.get(kind, "Write ${NAME} and set that variable, or keyring:NAME as the whole value."),
    )
