"""Several servers at one address: deploy/compose/nodes.yml and deploy/kubernetes."""

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
_MANIFESTS = _ROOT / "deploy" / "kubernetes"
_PACKAGES = {"kb": "loom_kb", "agent": "loom_agent"}


def parse(server: str, arguments: list[str]) -> Any:
    parser: Callable[[], Any] = import_module(f"{_PACKAGES[server]}.cli").SERVER.parser
    return parser().parse_args(arguments)


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return yaml.safe_load((_ROOT / "deploy/compose/nodes.yml").read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def base() -> dict[str, Any]:
    return yaml.safe_load((_ROOT / "docker-compose.yml").read_text(encoding="utf-8"))["services"]


@pytest.fixture(scope="module", params=_PACKAGES)
def server(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def resources(server: str) -> dict[tuple[str, str], dict[str, Any]]:
    loaded = yaml.safe_load_all((_MANIFESTS / f"{server}.yaml").read_text(encoding="utf-8"))
    return {(each["kind"], each["metadata"]["name"]): each for each in loaded}


@pytest.fixture(scope="module")
def pod(server: str, resources: dict[tuple[str, str], dict[str, Any]]) -> dict[str, Any]:
    return resources["StatefulSet", f"loom-{server}"]["spec"]["template"]["spec"]


def test_every_new_container_has_few_rights_and_limits(compose: dict[str, Any]):
    assert set(compose["services"]) == {"kb", "kb-2", "query", "agent", "agent-2", "front", "postgres"}
    for name in ("kb-2", "agent-2", "front", "postgres"):
        service = compose["services"][name]
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert {"mem_limit", "cpus", "pids_limit", "restart"} <= set(service), name
        assert all(port.startswith("127.0.0.1:") for port in service.get("ports", [])), name


def test_both_servers_differ_in_their_address_only(
    server: str, compose: dict[str, Any], base: dict[str, Any]
):
    first, second = compose["services"][server], compose["services"][f"{server}-2"]
    for name, service in ((server, first), (f"{server}-2", second)):
        args = parse(server, service["command"])
        assert (args.http, args.host, args.tokens) == (True, "0.0.0.0", True)
        assert args.node_url == f"http://{name}:8765"
        assert "front" in args.allow_host
        assert service["environment"]["LOOM_DATABASE"] == "postgresql://loom@postgres/loom"
        assert {"LOOM_DATABASE_SECRET", "LOOM_STATE_KEYS"} <= set(map(str, service["secrets"]))
    assert first["secrets"] == second["secrets"]
    assert first["environment"] == second["environment"]
    assert first["environment"].items() >= base[server].get("environment", {}).items()
    assert all(each in second["secrets"] for each in base[server]["secrets"])
    assert second["image"] == base[server]["image"]
    assert (second["mem_limit"], second["cpus"]) == (base[server]["mem_limit"], base[server]["cpus"])


def test_agents_share_a_home_and_knowledge_bases_only_their_tokens(
    compose: dict[str, Any], base: dict[str, Any]
):
    services = compose["services"]
    assert services["agent-2"]["volumes"] == base["agent"]["volumes"]
    home, tokens, documents = services["kb-2"]["volumes"]
    assert home == "kb-2:/data"
    assert (tokens["source"], tokens["target"], tokens["read_only"]) == ("kb", "/data/tokens", True)
    assert tokens["volume"] == {"subpath": "tokens"}
    assert documents == base["kb"]["volumes"][1]
    # Names of nodes, which must be those that they had before.
    assert [services[name]["hostname"] for name in ("kb", "kb-2")] == ["kb", "kb-2"]
    one, other = (parse("kb", services[name]["command"]) for name in ("kb", "kb-2"))
    assert one.root == other.root == parse("kb", base["kb"]["command"]).root


def test_the_front_knows_all_servers_and_the_others_ask_it(compose: dict[str, Any]):
    front = compose["services"]["front"]
    [mounted] = front["volumes"]
    text = (_ROOT / mounted.split(":")[0]).read_text(encoding="utf-8")
    for name in ("agent", "agent-2", "kb", "kb-2"):
        assert f"server {name}:8765 resolve;" in text
    assert front["ports"] == ["127.0.0.1:8769:8765", "127.0.0.1:8770:8766"]
    for name in ("query", "agent", "agent-2"):
        service = compose["services"][name]
        assert service["environment"]["LOOM_KB_URL"] == "http://front:8766/mcp"
        assert "front" in service["depends_on"]


def test_the_database_has_its_password_from_the_secret_that_the_servers_have(compose: dict[str, Any]):
    postgres = compose["services"]["postgres"]
    assert postgres["environment"]["POSTGRES_PASSWORD_FILE"] == "/run/secrets/LOOM_DATABASE_SECRET"
    assert postgres["secrets"] == ["LOOM_DATABASE_SECRET"]
    script = (_ROOT / "deploy/compose/secrets.sh").read_text(encoding="utf-8")
    assert all(name in script for name in compose["secrets"])


def test_the_manifest_is_what_kubernetes_takes(server: str):
    program = operating_program("kubernetes-validate")
    run = subprocess.run(
        [program, "--strict", "--no-warn", _MANIFESTS / f"{server}.yaml"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.count(" passed for resource ") == 4


def test_a_pod_is_a_node_with_the_address_that_its_service_gives(
    server: str, resources: dict[tuple[str, str], dict[str, Any]], pod: dict[str, Any]
):
    [container] = pod["containers"]
    names = {each["name"]: each for each in container["env"]}
    args = parse(server, container["args"])
    headless = resources["StatefulSet", f"loom-{server}"]["spec"]["serviceName"]
    assert resources["Service", headless]["spec"]["clusterIP"] == "None"
    assert args.node_url == f"http://$(POD_NAME).{headless}:8765"
    assert names["POD_NAME"]["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.name"
    assert names["LOOM_DATABASE"]["value"].startswith("postgresql://loom@")
    assert args.tokens
    program = import_module(f"{_PACKAGES[server]}.cli").SERVER
    assert args.drain + program.end_seconds < pod["terminationGracePeriodSeconds"]


def test_a_pod_has_few_rights_and_the_places_that_the_image_writes_to(
    server: str, resources: dict[tuple[str, str], dict[str, Any]], pod: dict[str, Any]
):
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
    [claim] = resources["StatefulSet", f"loom-{server}"]["spec"]["volumeClaimTemplates"]
    assert claim["metadata"]["name"] == mounted["/data"]
    assert "USER 10001:10001" in (_ROOT / "Dockerfile").read_text(encoding="utf-8")
