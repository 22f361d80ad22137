"""docker-compose.yml and the files next to it."""

from __future__ import annotations

import json
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import yaml

_ROOT = Path(__file__).parents[3]
_SERVERS = {"kb": "loom_kb", "query": "loom_query", "flow": "loom_flow", "agent": "loom_agent"}


def load(path: str) -> dict[str, Any]:
    return yaml.safe_load((_ROOT / path).read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    return load("docker-compose.yml")


def test_the_four_servers_and_what_watches_them_are_all_there_is(compose: dict[str, Any]):
    assert set(compose["services"]) == {*_SERVERS, "prometheus", "grafana"}
    watching = {name for name, each in compose["services"].items() if each.get("profiles") == ["monitoring"]}
    assert watching == {"prometheus", "grafana"}


def test_every_container_has_few_rights_and_limits(compose: dict[str, Any]):
    for name, service in compose["services"].items():
        assert service["read_only"] is True, name
        assert service["cap_drop"] == ["ALL"], name
        assert service["security_opt"] == ["no-new-privileges:true"], name
        assert service["restart"] == "unless-stopped", name
        assert {"mem_limit", "cpus", "pids_limit"} <= set(service), name
        assert "privileged" not in service, name
        assert "latest" not in service["image"], name
        for port in service["ports"]:
            assert port.startswith("127.0.0.1:"), f"{name} is published to the network"


def test_the_servers_for_tests_of_adapters_are_of_fixed_versions_and_for_this_machine_only():
    services = load("tests/fixtures/store_servers/compose.yml")["services"]
    assert set(services) == {"qdrant", "elasticsearch", "opensearch", "milvus"}
    for name, service in services.items():
        assert ":" in service["image"], name
        assert "latest" not in service["image"], name
        assert all(port.startswith("127.0.0.1:") for port in service["ports"]), name
        assert service["healthcheck"]["test"], name


@pytest.mark.parametrize(("name", "package"), _SERVERS.items())
def test_every_server_takes_its_command_and_is_known_by_its_name(
    compose: dict[str, Any], name: str, package: str
):
    service = compose["services"][name]
    parser: Callable[[], Any] = import_module(f"{package}.cli").SERVER.parser
    args = parser().parse_args(service["command"])
    assert (args.http, args.host, args.tokens, args.allow_host) == (True, "0.0.0.0", True, [name])
    assert args.port == 8765
    assert service["ports"][0].endswith(":8765")
    program = service["build"]["args"]["SERVER"]
    assert program == service["image"] == parser().prog
    assert (_ROOT / "requirements" / f"{program}.txt").is_file()
    assert service["init"] is True


def test_every_file_and_volume_that_is_mounted_is_there(compose: dict[str, Any]):
    for service in compose["services"].values():
        for volume in service["volumes"]:
            source, target, *mode = volume.rsplit(":", 2) if volume.endswith(":ro") else volume.split(":")
            if source.startswith("./"):
                assert (_ROOT / source).exists(), volume
                assert mode == ["ro"], f"{volume} could be written"
            elif not source.startswith("${"):
                assert source in compose["volumes"]
            assert target.startswith("/")


def test_every_secret_is_made_by_the_script_and_never_committed(compose: dict[str, Any]):
    script = (_ROOT / "deploy" / "compose" / "secrets.sh").read_text(encoding="utf-8")
    used = {
        secret["source"] if isinstance(secret, dict) else secret
        for service in compose["services"].values()
        for secret in service.get("secrets", [])
    }
    assert used == set(compose["secrets"])
    for name, secret in compose["secrets"].items():
        assert secret == {"file": f"./secrets/{name}"}
        made = f"secret {name} " in script
        assert made or (name.startswith("metrics_") and name.removeprefix("metrics_") in script), name
    assert "/secrets/" in (_ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()


@pytest.mark.parametrize("name", _SERVERS)
def test_every_server_has_the_key_of_the_language_model_by_its_vendors_name(
    compose: dict[str, Any], name: str
):
    [key] = [secret for secret in compose["services"][name]["secrets"] if isinstance(secret, dict)]
    assert key == {"source": "MODEL_KEY", "target": "${LOOM_MODEL_KEY:-DEEPSEEK_API_KEY}"}


def test_a_model_for_the_knowledge_base_is_chosen_from_outside(compose: dict[str, Any]):
    from loom_kb.language_model import VARIABLE

    assert compose["services"]["kb"]["environment"] == {VARIABLE: f"${{{VARIABLE}:-}}"}


def test_prometheus_asks_every_server_with_a_token_of_its_own(compose: dict[str, Any]):
    config = load("deploy/compose/prometheus.yml")
    asked: dict[str, str] = {}
    for job in config["scrape_configs"]:
        [static] = job["static_configs"]
        [target] = static["targets"]
        name = target.removesuffix(":8765")
        secret = Path(job["authorization"]["credentials_file"])
        assert secret.parent == Path("/run/secrets")
        assert secret.name in compose["services"]["prometheus"]["secrets"]
        assert secret.name == f"metrics_{name}"
        # What alerts and dashboard choose by, as where one job has all servers.
        assert static["labels"] == {"job": "loom", "service": job["job_name"]}
        asked[name] = job["job_name"]
    assert asked == {name: compose["services"][name]["image"] for name in _SERVERS}
    mounted = " ".join(compose["services"]["prometheus"]["volumes"])
    assert all(f"/etc/prometheus/{rules}" in mounted for rules in config["rule_files"])


def test_grafana_finds_prometheus_and_the_dashboard(compose: dict[str, Any]):
    [source] = load("deploy/grafana/provisioning/datasources/prometheus.yml")["datasources"]
    [provider] = load("deploy/grafana/provisioning/dashboards/loom.yml")["providers"]
    grafana = compose["services"]["grafana"]
    assert (source["type"], source["url"]) == ("prometheus", "http://prometheus:9090")
    assert set(grafana["networks"]) & set(compose["services"]["prometheus"]["networks"]) == {"watching"}
    folder = provider["options"]["path"]
    assert f"./deploy/grafana/loom.json:{folder}/loom.json:ro" in grafana["volumes"]


def test_the_servers_ask_the_knowledge_base_with_their_secret(compose: dict[str, Any]):
    entry = json.loads((_ROOT / "deploy/compose/mcp.json").read_text(encoding="utf-8"))["mcpServers"]["kb"]
    assert entry["url"] == "${LOOM_KB_URL:-http://kb:8765/mcp}"
    assert entry["headers"]["Authorization"] == "Bearer ${LOOM_KB_TOKEN}"
    for name in ("query", "agent"):
        service = compose["services"][name]
        assert "LOOM_KB_TOKEN" in service["secrets"]
        assert "./deploy/compose/mcp.json:/data/mcp.json:ro" in service["volumes"]
