"""Builds the container image without a container engine, starts it, asks it and stops it.

    python -m tools.build_image_dry loom-agent-server

Every instruction of the Dockerfile is carried out as it stands there, each stage in a folder of its own that
is the root directory of what runs: `unshare` of util-linux gives it mounts, processes and a network of its
own (tools/isolated_root.py). What comes out is started as a container would be: as process 1, with the root
for reading only, as the user that the Dockerfile names where this account may become it. Then its HEALTHCHECK
has to succeed, a caller with a token is answered, one without is refused, and SIGTERM has to end it with 0.

Linux only. Exit code 3 if this machine does not let us make namespaces.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools.dockerfile import Instruction, Stage, assignments, context_files, expand, read_stages
from tools.isolated_root import BASE_PATH, can_isolate, entering, joining, lay_base, process_one

_ROOT = Path(__file__).parents[1]
_CANNOT = 3
_PATIENCE = 60.0  # seconds for the first healthy answer, and for the end
_PASSED = ("PIP_", "UV_INDEX", "UV_DEFAULT_INDEX", "SSL_CERT", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")


class DryBuildError(Exception):
    """The dry build failed; the message says why."""


@dataclass(slots=True)
class _Built:
    """A partially built stage.

    Attributes:
        root: its root directory.
        environment: what ENV and ARG have set, for what runs while it is built.
        kept: the part of it that ENV has set, which the image has.
        folder: what WORKDIR has set.
        user: what USER has set.
    """

    root: Path
    environment: dict[str, str]
    kept: dict[str, str] = field(default_factory=dict[str, str])
    folder: str = "/"
    user: str = ""


def main() -> None:
    """Read the command line, build, and try what was built."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("server", help="such as loom-kb")
    parser.add_argument("--at", type=Path, help="where the roots are made and kept (default: not kept)")
    args = parser.parse_args()
    if not can_isolate():
        print("This machine does not allow namespaces (unshare of util-linux): nothing was built.")
        sys.exit(_CANNOT)
    try:
        with _place(args.at) as place:
            _build_and_try(args.server, place)
    except DryBuildError as error:
        sys.exit(f"FAILED: {error}")


def _build_and_try(server: str, place: Path) -> None:
    arguments = {"SERVER": server}
    stages = read_stages((_ROOT / "Dockerfile").read_text(encoding="utf-8"), arguments)
    built: dict[str, _Built] = {}
    for number, stage in enumerate(stages):
        made = _Built(place / f"stage-{number}", {"PATH": BASE_PATH, "HOME": "/"})
        lay_base(made.root)
        print(f"== {stage.name or 'the image'}, from {stage.base}", flush=True)
        for instruction in stage.instructions:
            began = time.monotonic()
            _carry_out(instruction, made, built, arguments)
            if (seconds := time.monotonic() - began) >= 0.1:
                print(f"   line {instruction.line}: {instruction.name}, {seconds:.1f} s", flush=True)
        built[stage.name] = made
    _try_image(stages[-1], built[""], server)


def _carry_out(
    instruction: Instruction, made: _Built, built: Mapping[str, _Built], arguments: Mapping[str, str]
) -> None:
    value = expand(instruction.value, made.environment)
    match instruction.name:
        case "ARG":
            name, _, default = value.partition("=")
            made.environment[name] = arguments.get(name, default)
        case "ENV":
            made.kept |= assignments(instruction, made.environment)
            made.environment |= made.kept
        case "WORKDIR":
            made.folder = value
            _inside(made.root, value).mkdir(parents=True, exist_ok=True)
        case "USER":
            made.user = value
        case "COPY":
            *sources, target = value.split()
            _copy(instruction, sources, _target(made, target), built)
        case "RUN":
            _run(instruction, made)
        case _:  # says how it is to be started
            return


def _copy(instruction: Instruction, sources: list[str], target: Path, built: Mapping[str, _Built]) -> None:
    owner = instruction.flag("chown")
    if stage := instruction.flag("from"):
        for source in sources:
            shutil.copytree(
                _inside(built[stage].root, source),
                target,
                symlinks=True,
                dirs_exist_ok=True,
                copy_function=shutil.copy2 if owner else os.link,
            )
        if owner and os.geteuid() == 0:
            ids = [int(number) for number in owner.split(":")]
            for path in (target, *target.rglob("*")):
                os.lchown(path, ids[0], ids[-1])
        return
    sent = [*context_files(_ROOT)]
    for source in sources:
        wanted = [path for path in sent if source == "." or path == source or path.startswith(f"{source}/")]
        if not wanted:
            raise DryBuildError(f"line {instruction.line}: {source} is not among what the build is sent")
        for path in wanted:
            into = target / (path if source == "." else Path(path).name)
            into.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(_ROOT / path, into)


def _run(instruction: Instruction, made: _Built) -> None:
    cache = ""
    if mount := instruction.flag("mount"):
        options = dict(option.split("=", 1) for option in mount.split(","))
        if options["type"] != "cache":
            raise DryBuildError(
                f"line {instruction.line}: mounts of type {options['type']} are not known here"
            )
        cache = options["target"]
        _inside(made.root, cache).mkdir(parents=True, exist_ok=True)
    passed = {name: value for name, value in os.environ.items() if name.upper().startswith(_PASSED)}
    shell = ["/bin/sh", "-c", f'cd "{made.folder}" && {instruction.value}']
    command = entering(made.root, {**passed, **made.environment}, shell, cache=cache)
    if code := subprocess.run(command, check=False).returncode:
        raise DryBuildError(f"line {instruction.line} of the Dockerfile ended with {code}")


def _try_image(stage: Stage, made: _Built, server: str) -> None:
    environment = {"PATH": BASE_PATH, **made.kept}
    user = made.user if os.geteuid() == 0 else ""
    program = stage.last("ENTRYPOINT").words()
    line = [*program, *stage.last("CMD").words()]
    volume = stage.last("VOLUME").value
    began = time.monotonic()
    started = entering(made.root, environment, _in_folder(made, line), user=user, volume=volume)
    with subprocess.Popen(started) as outside:
        try:
            one = process_one(outside)
            inside = [*joining(one, user), *(f"{name}={value}" for name, value in environment.items())]
            health = Instruction("CMD", stage.last("HEALTHCHECK").value.removeprefix("CMD "), (), 0).words()
            _wait_until_healthy([*inside, *health], outside)
            who = user or "root of its own namespace"
            print(f"   healthy after {time.monotonic() - began:.1f} s as process 1, user {who}")
            _check_callers(inside, program, server)
            began = time.monotonic()
            os.kill(one, getattr(signal, stage.last("STOPSIGNAL").value))
            code = outside.wait(_PATIENCE)
            print(f"   ended with {code} after {time.monotonic() - began:.1f} s")
        finally:
            outside.kill()
    if code:
        raise DryBuildError(f"on {stage.last('STOPSIGNAL').value} the server ended with {code}")
    size = sum(path.lstat().st_size for path in _inside(made.root, "/opt").rglob("*"))
    print(f"== {server}: {size / 1e6:,.0f} MB above its base image")


_CALLS = """
import json, sys, urllib.error, urllib.request
def call(token):
    headers = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
    client = {"name": "dry", "version": "0"}
    hello = {"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": client}
    message = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    if token:
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request("http://127.0.0.1:8765/mcp", json.dumps(message).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        return str(error.code)
refused, answer = call(""), call(sys.argv[1])
assert refused == "401", refused
assert json.dumps(sys.argv[2]) in answer, answer
"""


def _check_callers(inside: list[str], program: list[str], server: str) -> None:
    made = subprocess.run(
        [*inside, *program, "token", "create", "dry"], check=False, capture_output=True, text=True
    )
    if made.returncode:
        raise DryBuildError(f"no token could be made: {made.stderr}")
    asked = subprocess.run([*inside, "python", "-c", _CALLS, made.stdout.strip(), server], check=False)
    if asked.returncode:
        raise DryBuildError("a caller was not answered as they have to be")
    print("   a caller with a token is answered, one without is refused")


def _wait_until_healthy(check: list[str], outside: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _PATIENCE
    while (done := subprocess.run(check, check=False, capture_output=True, text=True)).returncode:
        if outside.poll() is not None or time.monotonic() > deadline:
            raise DryBuildError(f"the server did not become healthy: {done.stderr[-500:]}")
        time.sleep(0.2)


def _in_folder(made: _Built, command: list[str]) -> list[str]:
    return ["/bin/sh", "-c", 'cd "$0" && exec "$@"', made.folder, *command]


def _inside(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _target(made: _Built, path: str) -> Path:
    return _inside(made.root, path if path.startswith("/") else f"{made.folder}/{path}")


@contextmanager
def _place(kept: Path | None) -> Generator[Path]:
    if kept is not None:
        kept.mkdir(parents=True)
        kept.chmod(0o755)
        yield kept.absolute()
        return
    with tempfile.TemporaryDirectory(prefix="loom-image-") as folder:
        Path(folder).chmod(0o755)  # the server's user has to come through
        yield Path(folder)


if __name__ == "__main__":
    main()
