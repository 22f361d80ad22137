"""`loom-kb serve --http` behind the TLS proxies of deploy/, each with the very file that is shown there."""

from __future__ import annotations

import datetime
import json
import ssl
import sys
import time
from pathlib import Path

import httpx2
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.fixtures import operating
from tests.fixtures.commands import run_command
from tests.fixtures.store_servers import free_port

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="stopped by POSIX signals")

DEPLOY = Path(__file__).parents[2] / "deploy"
HOST = "kb.example"
META = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
SECONDS = 30


def nginx(operating, folder, certificate, key, upstream, port):
    site = operating.exchanged(
        (DEPLOY / "nginx" / "loom.conf").read_text(encoding="utf-8"),
        {
            "listen 443 ssl;": f"listen 127.0.0.1:{port} ssl;",
            "    listen [::]:443 ssl;\n": "",
            f"/etc/letsencrypt/live/{HOST}/fullchain.pem": str(certificate),
            f"/etc/letsencrypt/live/{HOST}/privkey.pem": str(key),
            "server 127.0.0.1:8765;": f"server {upstream};",
        },
    )
    return operating.nginx_command(folder, site)


def caddy(operating, folder, certificate, key, upstream, port):
    site = operating.exchanged(
        (DEPLOY / "caddy" / "Caddyfile").read_text(encoding="utf-8"),
        {f"{HOST} {{": f"{HOST}:{port} {{\n\ttls {certificate} {key}", "127.0.0.1:8765": upstream},
    )
    (folder / "Caddyfile").write_text(f"{{\n\tadmin off\n\tauto_https off\n}}\n{site}", encoding="utf-8")
    program = operating.operating_program("caddyserver")
    return [program, "run", "--adapter", "caddyfile", "--config", str(folder / "Caddyfile")]


@pytest.fixture(scope="module")
def certified(tmp_path_factory):
    """A certificate for the name of the examples, and its key."""
    folder = tmp_path_factory.mktemp("certificate")
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, HOST)])
    now = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(HOST)]), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(key, hashes.SHA256())
    )
    pem = serialization.Encoding.PEM
    (folder / "certificate.pem").write_bytes(certificate.public_bytes(pem))
    private = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / "key.pem").write_bytes(private)
    return folder / "certificate.pem", folder / "key.pem"


class Outside:
    """A client who reaches the server by its name, through a proxy."""

    def __init__(self, web, port, token):
        self.web, self.port, self.token = web, port, token

    def headers(self, method, **more):
        return {
            "Host": HOST,
            "Accept": "application/json, text/event-stream",
            "Authorization": f"Bearer {self.token}",
            "MCP-Protocol-Version": "2026-07-28",
            "Mcp-Method": method,
            **more,
        }

    def request(self, method, *, path="/mcp", body=None, params=None, **headers):
        message = {"jsonrpc": "2.0", "id": 1, "method": method, "params": {"_meta": META, **(params or {})}}
        return self.web.build_request(
            "POST",
            f"https://127.0.0.1:{self.port}{path}",
            content=json.dumps(message) if body is None else body,
            headers={"Content-Type": "application/json", **self.headers(method), **headers},
            extensions={"sni_hostname": HOST},
        )

    def ask(self, method, **more):
        return self.web.send(self.request(method, **more))

    def look(self, path):
        return self.web.get(
            f"https://127.0.0.1:{self.port}{path}",
            headers=self.headers("-"),
            extensions={"sni_hostname": HOST},
        )


@pytest.fixture(scope="module", params=[nginx, caddy], ids=["nginx", "caddy"])
def outside(request, served, certified, tmp_path_factory):
    folder, home, port = tmp_path_factory.mktemp("proxy"), tmp_path_factory.mktemp("home"), free_port()
    loom_kb = [sys.executable, "-m", "loom_kb"]
    created = run_command("loom_kb", "token", "create", "张三", "--home", home, check=True)
    token = created.stdout.decode().strip()
    line = ["serve", "--home", str(home), "--embedder", "hashing", "--tokens", "--allow-host", HOST]
    trusting = ssl.create_default_context(cafile=str(certified[0]))
    with (
        served([*loom_kb, *line], "loom-kb") as url,
        operating.running(
            request.param(operating, folder, *certified, httpx2.URL(url).netloc.decode(), port), port, folder
        ),
        httpx2.Client(verify=trusting, timeout=SECONDS) as web,
    ):
        client = Outside(web, port, token)
        wait_until_it_speaks_tls(client)
        yield client


def wait_until_it_speaks_tls(client):
    """A port may take connections before there is a certificate behind it."""
    deadline = time.monotonic() + SECONDS
    while True:
        try:
            client.look("/")
            return
        except httpx2.TransportError:
            assert time.monotonic() < deadline, "the proxy does not answer"
            time.sleep(0.05)


def test_a_caller_with_a_token_is_answered_under_the_public_name(outside):
    answer = outside.ask("server/discover")
    assert answer.status_code == 200, answer.text
    assert "loom-kb" in answer.text
    refused = outside.ask("server/discover", Authorization="Bearer nothing")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"].startswith("Bearer ")


@pytest.mark.hostile("HTTP requests")
def test_names_and_origins_are_checked_as_without_a_proxy(outside):
    assert outside.ask("server/discover", Origin=f"https://{HOST}").status_code == 200
    assert outside.ask("server/discover", Origin="https://evil.example").status_code == 403


@pytest.mark.hostile("HTTP requests")
def test_what_is_for_operators_does_not_come_out(outside):
    assert [outside.look(path).status_code for path in ("/metrics", "/healthz", "/readyz", "/", "/mcp2")] == [
        404
    ] * 5


@pytest.mark.hostile("HTTP requests")
def test_a_body_that_is_too_long_is_refused(outside):
    # Caddy answers before it has read it all, and may take the rest for the head of a further request.
    too_long = outside.ask("server/discover", body=b" " * (6 << 20), Connection="close")
    assert too_long.status_code == 413
    assert outside.ask("server/discover", body=b" " * (3 << 20) + b"{}").status_code == 400


def test_events_come_while_the_stream_is_open(outside):
    listening = outside.request("subscriptions/listen", params={"notifications": {"toolsListChanged": True}})
    answer = outside.web.send(listening, stream=True)
    try:
        assert answer.status_code == 200
        first = next(line for line in answer.iter_lines() if line.startswith("data:"))
        assert "acknowledged" in first
    finally:
        answer.close()
