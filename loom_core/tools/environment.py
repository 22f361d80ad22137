"""Environment of a server that is started as a child process.

A third-party server must not see this program's keys: it gets only the variables that programs need to run at
all, and those of its entry.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

__all__ = ["child_environment"]

_EVERYWHERE = {
    "LOOM_HOME",  # Loom's servers use the same folder
    "PATH", "TEMP", "TMP", "TMPDIR", "TZ",
    # Without these the network is unreachable behind a proxy.
    "ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
    # `loom_core.TELEMETRY_SWITCHES` and the like: no telemetry of the child's libraries either.
    "ANONYMIZED_TELEMETRY", "DO_NOT_TRACK", "HF_HUB_DISABLE_TELEMETRY", "ORT_DISABLE_TELEMETRY",
}  # fmt: skip
_UNIX = {
    "HOME", "LANG", "LANGUAGE", "LOGNAME", "SHELL", "TERM", "USER",
    "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
}  # fmt: skip
_WINDOWS = {
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATHEXT", "PROCESSOR_ARCHITECTURE",
    "PROGRAMDATA", "PROGRAMFILES", "SYSTEMDRIVE", "SYSTEMROOT", "USERNAME", "USERPROFILE", "WINDIR",
}  # fmt: skip


def child_environment(
    added: Mapping[str, str], *, environment: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of a child: a few inherited variables, and those of its entry.

    Args:
        added: `env` of its entry.
        environment: the parent's environment; by default that of this process.
    """
    ours = os.environ if environment is None else environment
    passed = _EVERYWHERE | (_WINDOWS if sys.platform == "win32" else _UNIX)
    kept = {
        name: value
        for name, value in ours.items()
        # Proxy variables may be lower-case, too; a value that begins with () is a shell function.
        if (name.upper() in passed or name.startswith("LC_")) and not value.startswith("()")
    }
    return {**kept, **added}
