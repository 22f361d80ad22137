"""Run a command in an isolated root directory, as a container engine does, by `unshare`.

In the place of a base image stand this machine's system, for reading, and the Python that runs this. Root may
become any user in there; everybody else is root of a namespace of their own. Linux only.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path

__all__ = ["BASE_PATH", "can_isolate", "entering", "joining", "lay_base", "process_one"]

_SYSTEM = ("bin", "etc", "lib", "lib64", "sbin", "usr")  # of this machine
_PROGRAMS = "/base"  # Python's
_START_SECONDS = 60.0

BASE_PATH = f"{_PROGRAMS}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
"""`PATH` in the base image."""

_ENTER = r"""
root=$1 home=$2 read_only=$3 cache=$4 user=$5; shift 5
mount --make-rprivate /
[ "$read_only" = no ] || mount --bind "$root" "$root"
for place in $SYSTEM "$home"; do
    mount --rbind "/$place" "$root/$place"
    mount -o remount,bind,ro "$root/$place" 2>/dev/null || [ "$PRIVILEGED" = no ]
done
mount --rbind /dev "$root/dev"
mount -t proc proc "$root/proc"
mount -t tmpfs -o mode=1777 tmpfs "$root/tmp"
if [ -n "$cache" ]; then mount --bind "$CACHE" "$root/$cache"; fi
if [ "$read_only" = yes ]; then
    mount --bind "$root/$VOLUME" "$root/$VOLUME"
    mount -o remount,bind,ro "$root"
    "$PYTHON" -c 'import fcntl, socket, struct
fcntl.ioctl(socket.socket(), 0x8914, struct.pack("16sh", b"lo", 0x41))'  # the loopback interface is up
fi
cd "$root"
exec chroot ${user:+--userspec="$user"} "$root" /usr/bin/env -i "$@"
"""
"""Makes the root of a stage what it is to what runs in it; what follows its five arguments is for `env`."""


def can_isolate() -> bool:
    """Return whether this machine allows namespaces."""
    if sys.platform != "linux" or shutil.which("unshare") is None or shutil.which("nsenter") is None:
        return False
    user = [] if os.geteuid() == 0 else ["--user", "--map-root-user"]
    tried = ["unshare", *user, "--mount", "--pid", "--net", "--fork", "mount", "--make-rprivate", "/"]
    return subprocess.run(tried, check=False, capture_output=True).returncode == 0


def lay_base(root: Path) -> None:
    """Create the folders of a base image, with the mount points."""
    for name in ("dev", "proc", "tmp", "root", sys.base_prefix.lstrip("/"), *filter(_is_own_folder, _SYSTEM)):
        (root / name).mkdir(parents=True, exist_ok=True)
    for name in _SYSTEM:
        if Path("/", name).is_symlink():
            (root / name).symlink_to(Path("/", name).readlink())
    programs = root / _PROGRAMS.lstrip("/")
    programs.mkdir()
    for name in ("python", "python3"):  # Debian has no program `python`, the base image does
        (programs / name).symlink_to(Path(sys.executable).resolve())


def entering(
    root: Path,
    environment: Mapping[str, str],
    command: list[str],
    *,
    cache: str = "",
    user: str = "",
    volume: str = "",
) -> list[str]:
    """Build the command that runs another in an isolated root directory, with a volume if given."""
    privileged = os.geteuid() == 0
    namespaces = ["--mount", "--pid", "--fork", "--kill-child"]
    namespaces += [] if privileged else ["--user", "--map-root-user"]
    namespaces += ["--net"] if volume else []
    told = {
        "SYSTEM": " ".join(name for name in _SYSTEM if _is_own_folder(name)),
        "PRIVILEGED": "yes" if privileged else "no",
        "CACHE": str(_cache()),
        "VOLUME": volume.lstrip("/"),
        "PYTHON": sys.executable,
        "PATH": os.environ["PATH"],
    }
    return [
        "/usr/bin/env", "-i", *(f"{name}={value}" for name, value in told.items()),
        "unshare", *namespaces, "/bin/sh", "-euc", _ENTER, "enter", str(root), sys.base_prefix.lstrip("/"),
        "yes" if volume else "no", cache.lstrip("/"), user,
        *(f"{name}={value}" for name, value in environment.items()), *command,
    ]  # fmt: skip


def joining(one: int, user: str) -> list[str]:
    """Return the command that runs another next to process 1, as `docker exec` does; variables follow."""
    own, _, group = user.partition(":")
    ids = [f"--setuid={own}", f"--setgid={group}"] if user else []
    spaces = [
        "--mount",
        "--pid",
        "--net",
        "--root",
        "--wd",
        *([] if os.geteuid() == 0 else ["--user", "--preserve-credentials"]),
    ]
    return ["nsenter", f"--target={one}", *spaces, *ids, "/usr/bin/env", "-i"]


def process_one(outside: subprocess.Popen[bytes]) -> int:
    """Return the id of the image's process 1 outside: the child of `unshare`."""
    children = Path(f"/proc/{outside.pid}/task/{outside.pid}/children")
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline:
        numbers = children.read_text(encoding="ascii").split()
        if numbers and Path(f"/proc/{numbers[0]}/root").readlink() != Path("/"):
            return int(numbers[0])
        time.sleep(0.05)
    raise TimeoutError("the process did not start in its root")


def _cache() -> Path:
    """This account's own caches of pip and uv, which a builder's cache mount is here."""
    folder = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def _is_own_folder(name: str) -> bool:
    return Path("/", name).is_dir() and not Path("/", name).is_symlink()
