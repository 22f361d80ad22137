"""Real HTTP servers on this machine, for the client to ask."""

from __future__ import annotations

import datetime
import ipaddress
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from loom_core.net import GuardedClient, NetPolicy

if TYPE_CHECKING:
    from tests.fixtures.local_server import LocalServer

    StartLocal = Callable[..., LocalServer]


@pytest.fixture
def server(local_servers: StartLocal) -> LocalServer:
    return local_servers()


@pytest.fixture
def other(local_servers: StartLocal) -> LocalServer:
    return local_servers()


@pytest.fixture
def client() -> GuardedClient:
    """A client that may ask the servers of this machine."""
    return GuardedClient(NetPolicy.allowing(["127.0.0.1"]))


class Certificates(NamedTuple):
    """Contexts for a server that is `site.example`, and for a client that trusts who says so."""

    server: ssl.SSLContext
    client: ssl.SSLContext


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "site.example")])
    now = datetime.datetime.now(datetime.UTC)
    names = [x509.DNSName("site.example"), x509.IPAddress(ipaddress.ip_address("127.0.0.9"))]
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName(names), critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .sign(key, hashes.SHA256())
    )
    path: Path = tmp_path_factory.mktemp("tls") / "site.pem"
    path.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        + certificate.public_bytes(serialization.Encoding.PEM)
    )
    server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server.load_cert_chain(path)
    return Certificates(server, ssl.create_default_context(cafile=str(path)))


@pytest.fixture
def tls_server(certificates: Certificates, local_servers: StartLocal) -> LocalServer:
    return local_servers(certificates.server)
