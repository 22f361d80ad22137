"""Properties of a vendor's connection before it is opened."""

from __future__ import annotations

import sys

import pytest

from loom_core.errors import ConfigError
from loom_core.installation import how_to_install
from loom_core.llm.hosted.provider import HostedProvider
from loom_core.llm.vendors import ANTHROPIC, DEEPSEEK, ProviderSpec


@pytest.mark.parametrize(("spec", "package"), [(DEEPSEEK, "openai"), (ANTHROPIC, "anthropic")])
async def test_a_package_that_is_missing_is_told_beforehand_with_the_advice_of_the_error(
    spec: ProviderSpec, package: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, package, None)
    llm = HostedProvider(spec, api_key="sk-of-no-value-to-anyone")
    advice = how_to_install(f"loom-mcp-core[{package}]")
    assert llm.problem() == f"the package {package} is missing. {advice}"
    with pytest.raises(ConfigError) as refused:
        await llm.chat([{"role": "user", "content": "什么是织机？"}])
    assert refused.value.advice == advice
