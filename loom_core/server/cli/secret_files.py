"""Secret files, as from Docker, Kubernetes and systemd.

They become variables of this process, so that all code that reads secrets from the environment finds them,
and no configuration depends on their origin. Other processes cannot see them there: the system shows only the
environment at the start.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import SecretStr

from loom_core.errors import ConfigError
from loom_core.keys import register_secret

if TYPE_CHECKING:
    from collections.abc import MutableMapping

__all__ = ["VARIABLE", "take_secret_files"]

VARIABLE = "LOOM_SECRETS_DIR"
"""The folder of the files; each has the name of its variable."""

_NAME = re.compile(r"[A-Z][A-Z0-9_]*")
_MOST = 64 << 10  # bytes of a file


def take_secret_files(environment: MutableMapping[str, str] | None = None) -> list[str]:
    """Set a variable for each file in the folder that `LOOM_SECRETS_DIR` names; return their names.

    Files without a name in capitals are ignored, and so are those whose variable is set already. Surrounding
    white space is stripped. A missing folder counts as empty.

    Args:
        environment: the variables; those of this process if not given.

    Raises:
        ConfigError: the folder or a file cannot be read, or a file is no text or too long.
    """
    variables = os.environ if environment is None else environment
    folder = variables.get(VARIABLE, "")
    if not folder:
        return []
    taken: list[str] = []
    for path in _files(Path(folder)):
        if not variables.get(path.name) and (value := _text(path)):
            variables[path.name] = register_secret(SecretStr(value)).get_secret_value()
            taken.append(path.name)
    return taken


def _files(folder: Path) -> list[Path]:
    try:
        # Kubernetes has links here to the files of a hidden folder, which it exchanges as a whole.
        return sorted(path for path in folder.iterdir() if _NAME.fullmatch(path.name) and path.is_file())
    except (FileNotFoundError, NotADirectoryError):
        return []
    except OSError as error:
        raise ConfigError(
            f"The folder {folder} of secrets cannot be read: {error.strerror}.",
            advice=f"Let this user read it, or set {VARIABLE} to another folder.",
        ) from error


def _text(path: Path) -> str:
    advice = "A file of secrets holds one secret as text, and this user has to be able to read it."
    try:
        with path.open("rb") as file:
            content = file.read(_MOST + 1)
        text = content.decode("utf-8").strip()
    except OSError as error:
        raise ConfigError(
            f"The file {path} of a secret cannot be read: {error.strerror}.", advice=advice
        ) from error
    except UnicodeDecodeError:
        raise ConfigError(f"The file {path} of a secret holds no text.", advice=advice) from None
    if len(content) > _MOST or "\0" in text:
        raise ConfigError(f"The file {path} does not hold a valid secret.", advice=advice)
    return text
