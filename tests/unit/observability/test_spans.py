from __future__ import annotations

import re

import pytest
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes, jsonrpc_attributes, mcp_attributes
from opentelemetry.semconv.attributes import (
    error_attributes,
    http_attributes,
    network_attributes,
    server_attributes,
)

from loom_core.observability.spans import ATTRIBUTES, KNOWLEDGE_SEARCH, SPANS

NEWER = {"rpc.response.status_code"}
"""In the conventions, but not in the package yet."""


def conventional() -> set[str]:
    modules = (
        error_attributes,
        gen_ai_attributes,
        http_attributes,
        jsonrpc_attributes,
        mcp_attributes,
        network_attributes,
        server_attributes,
    )
    return {value for module in modules for value in vars(module).values() if isinstance(value, str)}


def test_every_attribute_of_a_span_is_described_and_every_description_is_used():
    used = {name for form in SPANS for name in form.attributes}
    assert used == set(ATTRIBUTES)
    for form in SPANS:
        assert len(set(form.attributes)) == len(form.attributes), form.name


def test_a_name_is_that_of_the_conventions_or_loom_s_own():
    own = re.compile(r"(loom|retrieval)\.")
    assert {name for name in ATTRIBUTES if not own.match(name)} <= conventional() | NEWER


@pytest.mark.parametrize("form", [form for form in SPANS if not form.by_sdk], ids=lambda form: form.name)
def test_what_a_name_ends_with_is_an_attribute(form):
    assert not form.target or form.target in form.attributes
    assert form.shown.startswith(form.name)


def test_a_search_has_all_that_was_agreed_on():
    agreed = (
        "strategy graph_count vector_count expansion_count result_count parallel_ms expansion_ms total_ms"
    )
    names = {f"retrieval.{name}" for name in [*agreed.split(), "fallback_to_vector"]}
    assert names <= set(KNOWLEDGE_SEARCH.attributes)
