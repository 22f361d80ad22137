"""Our client conforms to both revisions of the protocol, by the official suite."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.fork_server import starts_quickly

pytestmark = pytest.mark.slow

_CLIENT = Path(__file__).with_name("client.py")

# What the suite tries besides what it requires, and Loom does not offer.
NOT_OFFERED = {
    "auth/dpop": "tokens bound to a key (RFC 9449): an extension that the SDK has no part of",
    "auth/dpop-nonce": "the same, with a nonce of the authorization server",
    "auth/wif-jwt-bearer": "identity of a workload, given by the cloud it runs in: an extension",
    "auth/enterprise-managed-authorization": "identity given by a company's provider: an extension, too",
}

# What the client has to refuse, and says so; one server lists a tool that it does not know.
REFUSED = {
    "2025-11-25": {"auth/scope-retry-limit": "refuses a token that is new"},
    "2026-07-28": {
        "auth/scope-retry-limit": "refuses a token that is new",
        "json-schema-ref-no-deref": "Method not found",
        "auth/resource-mismatch": "does not match expected",
        "auth/iss-supported-missing": "missing iss parameter",
        "auth/iss-wrong-issuer": "iss mismatch",
        "auth/iss-unexpected": "iss mismatch",
        "auth/iss-normalized": "iss mismatch",
        "auth/metadata-issuer-mismatch": "metadata issuer mismatch",
    },
}


@pytest.fixture(scope="module")
def command():
    """Return the command that the suite starts: a running client carries out its scenarios."""
    process = subprocess.Popen([sys.executable, starts_quickly(_CLIENT)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process:
        yield f"{sys.executable} -I -S {_CLIENT} {process.stdout.readline().strip()}"
        process.terminate()


@pytest.mark.parametrize("revision", ["2025-11-25", "2026-07-28"])
def test_every_scenario_of_a_revision_passes(command, suite, revision, tmp_path):
    _, found = suite.run_client(command, revision, tmp_path)

    required = suite.required(revision, "client")
    assert len(required) >= 18
    assert set(required) <= found.keys()
    assert found.keys() >= NOT_OFFERED.keys()
    objections = {
        name: scenario.objections()
        for name, scenario in found.items()
        if name not in NOT_OFFERED and scenario.objections()
    }
    # The suite misses the handshake, which the revision has done away with.
    headers = objections.pop("http-standard-headers", [])
    assert [line for line in headers if not re.search(r"SKIPPED: .* a \S*initialized? request;", line)] == []
    assert objections == {}
    assert [name for name in required if not found[name].passed] == []
    complaints = {
        name: scenario.complaint
        for name, scenario in found.items()
        if name not in NOT_OFFERED and scenario.complaint
    }
    assert complaints.keys() == REFUSED[revision].keys()
    for name, reason in REFUSED[revision].items():
        assert reason in complaints[name]
    assert NOT_OFFERED.keys().isdisjoint(required)
