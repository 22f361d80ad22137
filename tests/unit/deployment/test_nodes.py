"""Several agent servers at one address: deploy/compose/nodes.yml and deploy/kubernetes."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.fixtures.operating import operating_program

_ROOT = Path(__file__).parents[3]
_MANIFEST = _ROOT / "deploy" / "kubernetes" / "agent.yaml"


def parse(arguments: list[str]) -> Any:
    parser: Callable[[], Any] = import_module("loom_agent.cli").SERVER.parser
    return parser().parse_args(arguments)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((_ROOT / "deploy/compose/nodes.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def resources() -> dict[tuple[str, str], dict[str, Any]]:
    loaded = yaml.safe_load_all(_MANIFEST.read_text(encoding="utf-8"))
    return {(each["kind"], each["metadata"]["name"]): each for each in loaded}


@pytest.fixture(scope="module")
def pod(resources: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    return resources["StatefulSet", "loom-agent"]["spec"]["template"]["spec"]


def test_every_new_container_has_few_rights_and_limits(compose: dict[str, Any]):
    assert set(compose["services"]) == {"agent", "agent-2", "agents", "postgres"}
    for name in ("agent-2", "agents", "postgres"):
        service = compose["services"][name]
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert {"mem_limit", "cpus", "pids_limit", "restart"} <= set(service), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_both_servers_differ_in_their_address_only(compose: dict[str, Any]):
    base = yaml.safe_load((_ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]["agent"]
    services = compose["services"]
    for name in ("agent", "agent-2"):
        args = parse(services[name]["command"])
        assert (args.http, args.host, args.tokens) == (True, "0.0.0.0", True)
        assert args.node_url == f"http://{name}:8765"
        assert "agents" in args.allow_host
        assert services[name]["environment"] == {"LOOM_DATABASE": "postgresql://loom@postgres/loom"}
    assert services["agent"]["secrets"] == services["agent-2"]["secrets"]
    assert all(each in services["agent-2"]["secrets"] for each in base["secrets"])
    assert services["agent-2"]["volumes"] == base["volumes"]
    assert services["agent-2"]["image"] == base["image"]


def test_the_front_knows_both_servers(compose: dict[str, Any]):
    [mounted] = compose["services"]["agents"]["volumes"]
    text = (_ROOT / mounted.split(":")[0]).read_text(encoding="utf-8")
    assert "server agent:8765;" in text
    assert "server agent-2:8765;" in text


def test_the_database_has_its_password_from_the_secret_that_the_servers_have(compose: dict[str, Any]):
    postgres = compose["services"]["postgres"]
    assert postgres["environment"]["POSTGRES_PASSWORD_FILE"] == "/run/secrets/LOOM_DATABASE_SECRET"
    assert postgres["secrets"] == ["LOOM_DATABASE_SECRET"]
    script = (_ROOT / "deploy/compose/secrets.sh").read_text(encoding="utf-8")
    assert all(name in script for name in compose["secrets"])


def test_the_manifest_is_what_kubernetes_takes():
    program = operating_program("kubernetes-validate")
    run = subprocess.run(
        [program, "--strict", "--no-warn", _MANIFEST], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count(" passed for resource ") == 4


def test_a_pod_is_a_node_with_the_address_that_its_service_gives(
    resources: dict[tuple[str, str], dict[str, Any]], pod: dict[str, Any]
):
    [container] = pod["containers"]
    names = {each["name"]: each for each in container["env"]}
    args = parse(container["args"])
    headless = resources["StatefulSet", "loom-agent"]["spec"]["serviceName"]
    assert resources["Service", headless]["spec"]["clusterIP"] == "None"
    assert args.node_url == f"http://$(POD_NAME).{headless}:8765"
    assert names["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert names["LOOM_DATABASE"]["value"].startswith("postgresql://loom@")
    assert args.drain < pod["terminationGracePeriodSeconds"]
    assert args.tokens


def test_a_pod_has_few_rights_and_the_places_that_the_image_writes_to(pod: dict[str, Any]):
    [container] = pod["containers"]
    assert pod["securityContext"]["runAsUser"] == pod["securityContext"]["fsGroup"] == 10001
    assert pod["automountServiceAccountToken"] is False
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounted = {each["mountPath"]: each["name"] for each in container["volumeMounts"]}
    assert {"/data", "/data/tokens", "/run/secrets", "/tmp"} <= mounted.keys()
    assert "USER 10001:10001" in (_ROOT / "Dockerfile").read_text(encoding="utf-8")
