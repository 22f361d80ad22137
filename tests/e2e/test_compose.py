"""docker-compose.yml without containers: its script, its secrets and its configurations."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx2
import pytest
import yaml

from tests.fixtures.commands import run_command

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="runs a shell script")

ROOT = Path(__file__).parents[2]
MODULES = {"kb": "loom_kb", "query": "loom_query", "flow": "loom_flow", "agent": "loom_agent"}
# In the place of Docker: what follows the service's name goes to that server, with a home of its own.
DOCKER = """#!/bin/sh
set -eu
[ "$1 $2 $3 $4 $5" = "compose run --rm --no-deps -T" ]
service=$6
shift 6
case $service in {cases} esac
LOOM_HOME="{homes}/$service" exec "{python}" -m "$module" "$@"
"""


@pytest.fixture
def project(tmp_path):
    """A folder with the files that operators have, in which the script has been run."""
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    programs = tmp_path / "bin"
    programs.mkdir()
    cases = " ".join(f"{service}) module={module};;" for service, module in MODULES.items())
    docker = programs / "docker"
    docker.write_text(DOCKER.format(cases=cases, homes=tmp_path / "homes", python=sys.executable))
    docker.chmod(0o755)
    run_script(tmp_path)
    return tmp_path


def run_script(project):
    environment = {**os.environ, "PATH": f"{project / 'bin'}:{os.environ['PATH']}"}
    script = project / "deploy" / "compose" / "secrets.sh"
    subprocess.run([script], env=environment, check=True, capture_output=True, timeout=120)


def secret(project, name):
    return (project / "secrets" / name).read_text(encoding="utf-8").strip()


def test_the_servers_find_each_other_and_prometheus_its_numbers(project, served, monkeypatch):
    files = [ROOT / "docker-compose.yml", ROOT / "deploy" / "compose" / "nodes.yml"]
    declared = {
        name for file in files for name in yaml.safe_load(file.read_text(encoding="utf-8"))["secrets"]
    }
    folder = project / "secrets"
    assert sorted(path.name for path in folder.iterdir()) == sorted(declared)
    assert folder.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.iterdir()} == {0o444}
    assert len(secret(project, "grafana_password")) == 48
    assert secret(project, "MODEL_KEY") == ""
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    run_script(project)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    homes, handed_over = project / "homes", project / "run-secrets"
    handed_over.mkdir()
    shutil.copy(folder / "LOOM_KB_TOKEN", handed_over)
    note = "# 青岛港\n\n青岛港的港长是李明。"
    add = ["add", "-", "--home", homes / "kb", "--embedder", "hashing"]
    run_command("loom_kb", *add, stdin=note.encode(), check=True)
    line = [sys.executable, "-m", "loom_kb", "serve", "--home", str(homes / "kb"), "--tokens"]
    with served([*line, "--embedder", "hashing"], "loom-kb") as url:
        numbers = httpx2.URL(url).copy_with(path="/metrics")
        token = {"Authorization": f"Bearer {secret(project, 'metrics_kb')}"}
        assert "loom_http_refused_total" in httpx2.get(numbers, headers=token).text
        token = {"Authorization": f"Bearer {secret(project, 'LOOM_KB_TOKEN')}"}
        assert httpx2.get(numbers, headers=token).status_code == 403

        for name in ("query.json", "mcp.json"):
            text = (project / "deploy" / "compose" / name).read_text(encoding="utf-8")
            where = homes / "query" / name
            where.write_text(text.replace("http://kb:8765/mcp", url), encoding="utf-8")
            where.chmod(0o644)
        monkeypatch.setenv("LOOM_SECRETS_DIR", str(handed_over))
        ask = ["query", "谁是青岛港的港长？", "--json", "--home", str(homes / "query")]
        done = subprocess.run([sys.executable, "-m", "loom_query", *ask], capture_output=True, check=False)
        assert done.returncode == 0, done.stderr.decode()
        assert "李明" in json.dumps(json.loads(done.stdout), ensure_ascii=False)
