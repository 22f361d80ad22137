"""Writes docs/reference/environment.md: the variables of the environment that Loom reads or sets.

    python -m tools.reference environment

Which ones there are is found in the source; what each means stands here. A variable that is read and not
told, or told and not read, is an error.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from loom_core import TELEMETRY_SWITCHES
from loom_core.embedding.remote_models.vendors import EMBEDDING_VENDORS
from loom_core.llm.hosted.providers import PROVIDERS
from tools.provider_reference import table

_ROOT = Path(__file__).parents[1]
PAGE = _ROOT / "docs" / "reference" / "environment.md"

_HEAD = """\
# Environment variables

Made by `python -m tools.reference` from the code; do not edit.

A client that starts a server passes few of its own variables on: put those that a server needs into `env` of
its entry ([mcp-json.md](mcp-json.md)). A command-line option takes precedence over its variable.
"""

_OURS = {
    "LOOM_DATABASE": "PostgreSQL database for knowledge bases and journals of runs, as `--database`",
    "LOOM_DATABASE_SECRET": "password of that database; also in the keyring",
    "LOOM_GRAPH_SECRET": "password of the graph database of a knowledge base; also in the keyring",
    "LOOM_HOME": "Loom's folder: knowledge bases, configurations, runs, tokens; `~/.loom` by default. As "
    "`--home`",
    "LOOM_KB_GRAPH": "where new knowledge bases of `loom-kb` keep their graph, as `--graph`",
    "LOOM_KB_LLM": "language model that helps `loom-kb` to find entities, as `--llm`; `none` for rules alone",
    "LOOM_KB_LEXICAL": "where new knowledge bases of `loom-kb` search words, as `--lexical`",
    "LOOM_KB_VECTORS": "where new knowledge bases of `loom-kb` search their vectors, as `--vectors`",
    "LOOM_LOG_FORMAT": "`text` or `json`, as `--log-format`",
    "LOOM_LOG_LEVEL": "`debug`, `info`, `warning` or `error`, as `--log-level`",
    "LOOM_METRICS_FILE": "file to which a server writes its metrics, as `--metrics-file`",
    "LOOM_SECRETS_DIR": "folder of secrets, as from Docker, Kubernetes or systemd: each file "
    "sets the variable of its name, unless that is set already",
    "LOOM_STATE_KEYS": "comma-separated keys that sign the state which clients carry between requests: "
    "the first signs, all are accepted; at least 32 characters each. Servers behind a load balancer need "
    "the same keys; by default servers with the same folder share a file in it",
    "LOOM_TOKEN": "read by clients only: the token, in the entry for `mcp.json` that `serve --http --tokens` "
    "prints",
    "LOOM_TRACE_CONTENT": "`1`: spans include the texts of requests and answers",
    "LOOM_LEXICAL_SECRET": "password or API key of the search engine of a knowledge base; also as an entry of"
    " the keyring",
    "LOOM_VECTORS_SECRET": "password or API key of the vector database of a knowledge base; also as an entry "
    "of the keyring",
}
_ITS_OWN = {
    "LOOM_COMMAND": "set for every command of the shell tool, to find its processes",
    "LOOM_DEPTH": "set for MCP servers that Loom starts: the number of programs above them",
    "LOOM_STARTED": "likewise: the entries that have started them, so that none starts itself",
}
_OF_OTHERS = {
    "NO_COLOR": "any value: no bold text in the terminal",
    "OTEL_EXPORTER_OTLP_ENDPOINT": "address of the collector for traces",
    "OTEL_EXPORTER_OTLP_PROTOCOL": "`http/protobuf`, the default; with any other value nothing is sent",
    "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "the same for traces only, the whole address",
    "OTEL_EXPORTER_OTLP_TRACES_PROTOCOL": "the same for traces only",
    "OTEL_RESOURCE_ATTRIBUTES": "additional resource attributes in traces",
    "OTEL_SDK_DISABLED": "`true`: no traces",
    "OTEL_SERVICE_NAME": "name of the service in traces",
    "OTEL_TRACES_EXPORTER": "`otlp`: export traces, even without an address; anything else: do not",
    "SSL_CERT_DIR": "folder of certificates to trust instead of the system's",
    "SSL_CERT_FILE": "file of certificates to trust instead of the system's",
    "UV": "set by uvx: the program that `install` writes into a client's configuration",
    "XDG_CACHE_HOME": "where `doctor` looks for reports that onnxruntime has left; `~/.cache` by default",
    "XDG_RUNTIME_DIR": "where processes that share a knowledge base meet; by default the folder for "
    "temporary files",
}
_SOURCES = ("loom_core", "servers/*/loom_*")
_ELSEWHERE = ("testing",)  # for tests, in no server
_PREFIXED = re.compile(r"\b(?:LOOM|OTEL)_[A-Z]+(?:_[A-Z]+)*\b")
_ENVIRONMENTS = {"environ", "environment", "variables"}
_MENTIONED = re.compile("|".join(["LOOM_", "OTEL_", *sorted(_ENVIRONMENTS)]))  # in other files there is none


def page() -> str:
    """Return the whole page.

    Raises:
        ValueError: a variable is read that is not told here, or the reverse.
    """
    told = {*_OURS, *_ITS_OWN, *_OF_OTHERS}
    if wrong := told ^ find_variables():
        raise ValueError(f"Variables that are read and not told, or told and not read: {sorted(wrong)}")
    parts = [
        _HEAD,
        "## Variables of Loom",
        table(_rows(_OURS)),
        "## Common variables that Loom uses",
        table(_rows(_OF_OTHERS)),
        "An MCP server that Loom starts inherits only `LOOM_HOME`, `SSL_CERT_FILE`, `SSL_CERT_DIR`, "
        "`XDG_CACHE_HOME` and `XDG_RUNTIME_DIR` of these, in addition to `PATH` and the like, proxies "
        "(`HTTPS_PROXY`, `NO_PROXY`…), and the variables of its entry. `OPENAI_CUSTOM_HEADERS` is sent to "
        "OpenAI only, `ANTHROPIC_CUSTOM_HEADERS` to Anthropic only.",
        "## Keys",
        "Each is looked up in the environment, then in the keyring under the same name. A configuration can "
        "refer to any other variable as `env:NAME`.",
        table(_keys()),
        "## Set by Loom for its child processes",
        table(_rows(_ITS_OWN)),
        "## Set by importing Loom, unless set",
        "They keep dependencies from reporting to their makers, see [security.md](../security.md"
        "#telemetry-of-dependencies). Child processes of Loom get them, too, and `DO_NOT_TRACK`.",
        table(_switches()),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


@cache
def find_variables() -> frozenset[str]:
    """Find the variables in the source: Loom's and OpenTelemetry's anywhere, others where they are read."""
    names: set[str] = set()
    for pattern in _SOURCES:
        for package in _ROOT.glob(pattern):
            for path in package.rglob("*.py"):
                source = path.read_text(encoding="utf-8")
                if path.relative_to(package).parts[0] not in _ELSEWHERE and _MENTIONED.search(source):
                    names |= set(_names_in(ast.parse(source)))
    return frozenset(names)


def _names_in(tree: ast.Module) -> Iterator[str]:
    prose = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        match node:
            case ast.Constant(value=str(text)) if id(node) not in prose:
                yield from _PREFIXED.findall(text)
            case (
                ast.Call(
                    func=ast.Attribute(value=holder, attr="get"), args=[ast.Constant(value=str(name)), *_]
                )
                | ast.Subscript(value=holder, slice=ast.Constant(value=str(name)))
                | ast.Compare(left=ast.Constant(value=str(name)), comparators=[holder])
            ) if _is_environment(holder) and name.isupper() and name != "PATH":
                yield name
            case _:
                pass


def _is_environment(node: ast.expr) -> bool:
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return name in _ENVIRONMENTS


def _rows(meanings: dict[str, str]) -> Iterator[tuple[str, ...]]:
    yield "variable", "meaning"
    for name, meaning in sorted(meanings.items()):
        yield f"`{name}`", meaning


def _switches() -> Iterator[tuple[str, ...]]:
    yield "variable", "value"
    for name, value in TELEMETRY_SWITCHES.items():
        yield f"`{name}`", f"`{value}`"


def _keys() -> Iterator[tuple[str, ...]]:
    yield "variable", "key of"
    of: dict[str, list[str]] = {}
    for name, provider in PROVIDERS.items():
        of.setdefault(provider.vendor.key_variable, []).append(f"`{name}`")
    for name, vendor in EMBEDDING_VENDORS.items():
        of.setdefault(vendor.key_variable, []).append(f"`{name}` (embeddings)")
    of.pop("", None)
    for variable, names in sorted(of.items()):
        yield f"`{variable}`", ", ".join(names)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
