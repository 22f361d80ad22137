"""What a server that is started as a child finds in its environment.

Keys of this program's are no business of a server of somebody else's: it gets what programs need to run at
all, and what its entry says.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping

__all__ = ["child_environment"]

_EVERYWHERE = {
    "LOOM_HOME",  # a server of ours works on the same folder
    "PATH", "TEMP", "TMP", "TMPDIR", "TZ",
    # Without these nothing of the network is reached from behind a proxy.
    "ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY",
    "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "SSL_CERT_DIR", "SSL_CERT_FILE",
    # `loom_core.TELEMETRY_SWITCHES` and the like: what a child imports reports nothing to its maker either.
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
    """The environment of a child: a few variables of ours, and what its entry adds or replaces.

    Args:
        added: `env` of its entry.
        environment: ours; that of this process if not given.
    """
    ours = os.environ if environment is None else environment
    passed = _EVERYWHERE | (_WINDOWS if sys.platform == "win32" else _UNIX)
    kept = {
        name: value
        for name, value in ours.items()
        # Proxies are written in small letters, too; a value that begins with () is a function of a shell.
        if (name.upper() in passed or name.startswith("LC_")) and not value.startswith("()")
    }
    return {**kept, **added}
