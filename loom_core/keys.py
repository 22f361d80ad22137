"""Secrets: lookup in environment and keyring, and redaction of texts.

A secret is in an environment variable or in the keyring of the operating system (Keychain, Secret Service,
Credential Manager; needs the package `keyring`), and travels as a `SecretStr`, which no log shows.
"""

from __future__ import annotations

import json
import logging
import os
import re
import threading
from base64 import b64encode
from collections.abc import Callable, Iterable
from functools import lru_cache
from urllib.parse import quote

from pydantic import SecretStr

from loom_core.errors import ConfigError

__all__ = [
    "check_key",
    "check_reference",
    "check_variable",
    "find_key",
    "list_known_secrets",
    "own_key",
    "read_password",
    "redact",
    "register_secret",
    "resolve",
    "secret_forms",
]

_log = logging.getLogger(__name__)

_SERVICE = "loom"
_MIN_LENGTH = 4  # characters; a shorter one is no secret, and occurs in any text
_MIN_KNOWN_LENGTH = 8  # characters; a shorter one may be a word, which would be redacted everywhere
_MAX_KNOWN = 2000  # secrets; tokens of callers come and go, and the oldest are forgotten
_ADVICE = 'Write "env:NAME" for an environment variable, or "keyring:NAME" for an entry of the keyring.'

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LIKE_A_KEY = re.compile(
    r"\bsk-|(?=[A-Za-z]{0,15}\d)(?=[A-Z0-9]{0,15}[a-z])[A-Za-z0-9]{16}|\b(?:[0-9a-f]{4,}-){4}", re.ASCII
)
"""Patterns that no name of a variable or entry has: OpenAI's prefix, mixed letters and digits, a UUID."""

_URL_SAFE = str.maketrans("+/", "-_")  # the other alphabet of base64

_known: dict[str, SecretStr] = {}
_remembering = threading.Lock()


def find_key(
    variable: str, *, keyring: bool = True, keyring_service: str = _SERVICE, keyring_seconds: float = 10.0
) -> SecretStr | None:
    """Find a key by the name of its variable: in the environment, else in the keyring; None if in neither.

    A keyring that is not there, is locked, fails, or does not answer in time counts as empty. Reading it may
    take a while: async code calls this in a thread.

    Args:
        variable: an environment variable, and the name (`username`) of an entry of the keyring.
        keyring: whether to read the keyring, too; that takes about a second, and may show the user a prompt.
        keyring_service: service name of the entry in the keyring.
        keyring_seconds: timeout for the keyring, which may be asking the user.

    Raises:
        ConfigError: there is a key, but it cannot be valid; see `check_key`.
    """
    key = _from_environment(variable)
    return key if key or not keyring else _from_keyring(variable, keyring_service, keyring_seconds)


def read_password(variable: str) -> SecretStr | None:
    """Return the password in an environment variable, or None.

    Passwords may hold blanks and any letters, unlike keys, which are sent in headers.
    """
    given = os.environ.get(variable, "")
    return register_secret(SecretStr(given)) if given else None


def resolve(reference: str, *, keyring_service: str = _SERVICE, keyring_seconds: float = 10.0) -> SecretStr:
    """Resolve a reference `env:NAME` or `keyring:NAME` of a configuration to the secret.

    Raises:
        ConfigError: it is no such reference, or the secret does not exist. The message does not repeat what
            may be a secret.
    """
    check_reference(reference)
    place, _, name = reference.partition(":")
    if place == "env":
        key, where = _from_environment(name), f"The environment variable {name} is not set."
    else:
        key = _from_keyring(name, keyring_service, keyring_seconds)
        where = f"The keyring has no entry {name!r} under {keyring_service!r}, or is not available."
    if key is None:
        advice = f"Set it: keyring set {keyring_service} {name}" if place == "keyring" else "Set it."
        raise ConfigError(where, advice=advice)
    return key


def own_key(
    name: str, *, make: Callable[[], str], keyring_service: str = _SERVICE, keyring_seconds: float = 10.0
) -> SecretStr | None:
    """Return one of Loom's own keys from the keyring, created on first use; None without a keyring.

    Reading the keyring may take a while: async code calls this in a thread. Only one process at a time may
    call it: of two keys created at once the keyring keeps the last.

    Args:
        name: name of the entry.
        make: creates a key of printable ASCII; called if there is none.
        keyring_service: service name of the entry in the keyring.
        keyring_seconds: timeout for the keyring, which may be asking the user.
    """

    def get_or_make() -> str | None:
        import keyring

        known = keyring.get_password(keyring_service, name)
        if not known:
            keyring.set_password(keyring_service, name, make())
            known = keyring.get_password(keyring_service, name)  # None where nothing is ever kept
        return known

    return _read_keyring_entry(get_or_make, name, keyring_seconds)


def check_reference(text: str) -> str:
    """Validate a reference to a secret, and return it.

    Raises:
        ConfigError: it is not a reference, or has no name after its colon. It may be a secret, so the
            message does not repeat it.
    """
    place, _, name = text.partition(":")
    if place == "env" and name:
        check_variable(name, setting="The text after env:", advice=_ADVICE)
        return text
    if place == "keyring" and name.isprintable() and " " not in name and name:
        if _LIKE_A_KEY.search(name):
            raise ConfigError("The text after keyring: looks like a key, not a name.", advice=_ADVICE)
        return text
    raise ConfigError(
        "A key must not be written into a configuration, as files are copied and committed.", advice=_ADVICE
    )


def check_variable(name: str, *, setting: str, advice: str) -> str:
    """Validate the name of an environment variable, and return it.

    Args:
        name: the name to check.
        setting: the setting that holds it, for the message, such as `api_key_env of the reranker api`.
        advice: what to write there instead.

    Raises:
        ConfigError: it cannot be one, or looks like a key. It may be the key itself, which would be stored
            and shown as a name; the message does not repeat it.
    """
    if not _VARIABLE.fullmatch(name) or _LIKE_A_KEY.search(name):
        raise ConfigError(f"{setting} is not the name of an environment variable.", advice=advice)
    return name


def check_key(key: str | SecretStr, *, source: str) -> SecretStr:
    """Strip white space from a key, and check it.

    Args:
        key: the key.
        source: where it comes from, for the message, such as `the environment variable OPENAI_API_KEY`.

    Raises:
        ConfigError: it is empty, or contains white space or non-ASCII characters: it could not be sent in a
            header, and the HTTP library's error would show it.
    """
    text = (key.get_secret_value() if isinstance(key, SecretStr) else key).strip()
    if not text or not text.isascii() or not text.isprintable() or " " in text:
        what = "holds characters that cannot be part of a key" if text else "is empty"
        raise ConfigError(f"The key from {source} {what}.", advice="Copy it again.")
    return register_secret(SecretStr(text))


def register_secret(secret: SecretStr) -> SecretStr:
    """Register a secret and return it: this process redacts it from everything it writes; see `redaction`.

    Keys that this module finds are registered already; call this for secrets from elsewhere, such as the
    token of a request. A secret of fewer than eight characters is not registered.
    """
    value = secret.get_secret_value()
    if len(value) >= _MIN_KNOWN_LENGTH:
        with _remembering:
            _known.pop(value, None)  # it is the youngest again
            _known[value] = secret
            if len(_known) > _MAX_KNOWN:
                del _known[next(iter(_known))]
    return secret


def list_known_secrets() -> tuple[SecretStr, ...]:
    """Return the secrets that this process has registered."""
    with _remembering:
        return tuple(_known.values())


def redact(text: str, secrets: Iterable[SecretStr]) -> str:
    """Replace each secret in a text with `[secret]`, also in its URL-encoded form."""
    for form in secret_forms(secrets):
        text = text.replace(form, "[secret]")
    return text


def secret_forms(secrets: Iterable[SecretStr]) -> tuple[str, ...]:
    """Return the encoded forms of secrets: plain, URL, JSON, base64; forms that contain others come first.

    In base64 they are found within a longer text, too, as in `user:password`.
    """
    return _forms(frozenset(secret.get_secret_value() for secret in secrets))


@lru_cache(maxsize=16)
def _forms(values: frozenset[str]) -> tuple[str, ...]:
    forms = {form for value in values if len(value) >= _MIN_LENGTH for form in _forms_of(value)}
    return tuple(sorted(forms, key=lambda form: (-len(form), form)))


@lru_cache(maxsize=2 * _MAX_KNOWN)
def _forms_of(value: str) -> frozenset[str]:
    forms = {value, quote(value, safe=""), json.dumps(value)[1:-1], repr(value)[1:-1]}
    if len(value) >= _MIN_KNOWN_LENGTH:
        data = value.encode("utf-8", "surrogatepass")
        encoded = [b64encode(data).decode()]
        for before in range(3):  # bytes of the group that it begins in; `user:` may precede a password
            whole = slice((8 * before + 5) // 6, 8 * (before + len(data)) // 6)
            encoded.append(b64encode(bytes(before) + data).decode()[whole])
        forms |= {*encoded, *(each.translate(_URL_SAFE) for each in encoded)}
    return frozenset(forms)


def _from_environment(variable: str) -> SecretStr | None:
    key = os.environ.get(variable, "").strip()
    return check_key(key, source=f"the environment variable {variable}") if key else None


def _from_keyring(name: str, service: str, seconds: float) -> SecretStr | None:
    def get() -> str | None:
        import keyring

        return keyring.get_password(service, name)

    return _read_keyring_entry(get, name, seconds)


def _read_keyring_entry(get: Callable[[], str | None], name: str, seconds: float) -> SecretStr | None:
    """Read an entry of the keyring, in a thread, as it may wait for the user for ever."""
    found: list[str] = []

    def ask() -> None:
        try:
            found.append(get() or "")
        except ImportError:
            return
        except Exception as error:  # noqa: BLE001 - back ends raise what they like, and this is the thread's end
            _log.info("The keyring is not available for %s: %s", name, type(error).__name__)

    thread = threading.Thread(target=ask, name="loom-keyring", daemon=True)
    thread.start()
    thread.join(seconds)
    if thread.is_alive():
        _log.warning("The keyring did not answer within %g seconds when asked for %s.", seconds, name)
    if not found or not (key := found[0].strip()):
        return None
    return check_key(key, source=f"the keyring's entry {name!r}")
