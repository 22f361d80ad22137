"""Builds the MCPB bundle of a server, which hosts such as Claude Desktop install by a double click.

    python -m tools.build_mcpb kb --out dist [--mcpb COMMAND]

A bundle is small: `servers/NAME/mcpb/` with a project file that names the released package, which the host
installs with uv (type `uv` of manifest 0.4), so one bundle serves every platform. COMMAND is the official
tool (npm: @anthropic-ai/mcpb 2.1.2), which then checks the bundle. Run it from the repository's root.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import tempfile
import tomllib
import zipfile
from pathlib import Path
from typing import Any

_ROOT = Path(__file__).parents[1]
_FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # the same files are the same bundle, whenever it is built


def main() -> None:
    """Read the command line; build, and check if requested."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("server", help="the server's folder under servers/, such as kb")
    parser.add_argument("--out", type=Path, default=Path("dist"), help="where the bundle goes (default dist)")
    parser.add_argument("--mcpb", metavar="COMMAND", help="the official tool, to check the bundle with")
    args = parser.parse_args()
    bundle = build(_ROOT / "servers" / args.server, args.out)
    if args.mcpb:
        check(bundle, args.mcpb)
    print(bundle)


def build(server: Path, out: Path) -> Path:
    """Write the bundle of a server; returns where it is."""
    project = tomllib.loads((server / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    source = server / "mcpb"
    manifest = json.loads((source / "manifest.json").read_text(encoding="utf-8"))
    if (manifest["name"], manifest["version"]) != (project["name"], project["version"]):
        raise SystemExit(f"{source / 'manifest.json'} is not of {project['name']} {project['version']}.")
    files = {
        str(path.relative_to(source).as_posix()): path.read_bytes()
        for path in sorted(source.rglob("*"))
        if path.is_file() and "__pycache__" not in path.parts
    }
    files["pyproject.toml"] = _project_file(project).encode()
    files["README.md"] = (server / "README.md").read_bytes()
    files["LICENSE"] = (server / "LICENSE").read_bytes()
    out.mkdir(parents=True, exist_ok=True)
    bundle = out / f"{project['name']}-{project['version']}.mcpb"
    with zipfile.ZipFile(bundle, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in sorted(files.items()):
            entry = zipfile.ZipInfo(name, _FIRST_DAY)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = 0o644 << 16
            archive.writestr(entry, content)
    return bundle


def check(bundle: Path, command: str) -> None:
    """Let the official tool unpack a bundle and check its manifest.

    Raises:
        CalledProcessError: it finds something wrong.
    """
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([command, "unpack", bundle, folder], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([command, "validate", f"{folder}/manifest.json"], check=True)


def _project_file(project: dict[str, Any]) -> str:
    """Return the project that the host installs: nothing but the released package."""
    return (
        "[project]\n"
        f'name = "{project["name"]}-bundle"\n'
        f'version = "{project["version"]}"\n'
        f'requires-python = "{project["requires-python"]}"\n'
        f'dependencies = ["{project["name"]}=={project["version"]}"]\n'
        "\n"
        "[tool.uv]\n"
        "package = false\n"
    )


if __name__ == "__main__":
    main()
