"""What in a flow file does not fit the machine that it is on, though it may fit another."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, cast

from loom_core.config_file import ConfigProblem
from loom_core.errors import NetError
from loom_core.flow.config.models_values import reference_in
from loom_core.flow.config.references import texts_in

__all__ = ["machine_problems"]

_ENVIRONMENT = "env:"
_ADDRESSES = frozenset({"flow_url", "retrieve_knowledge_url", "url", "endpoint", "operation"})
_WHOLE = re.compile(r"https?://[^/?#{}\s]+", re.IGNORECASE)


def machine_problems(
    written: Mapping[str, Any], *, environment: Mapping[str, str] = os.environ
) -> Iterator[ConfigProblem]:
    """Addresses that may not be asked, and variables that the file refers to and that are not set.

    Args:
        written: what the file says.
        environment: the variables.
    """
    yield from _shut_addresses(written)
    told = set[str]()
    for text in texts_in(written, ()):
        reference = reference_in(text.text)
        name = reference.removeprefix(_ENVIRONMENT)
        if name != reference and name not in told and not environment.get(name):
            told.add(name)
            yield ConfigProblem(
                text.path,
                f"the environment variable {name} is not set.",
                "Set it where the server is started.",
            )


def _shut_addresses(written: Mapping[str, Any]) -> Iterator[ConfigProblem]:
    """Whole addresses of hosts that are known by their names alone not to be asked."""
    from loom_core.net import HttpClient, NetPolicy

    net = cast("Mapping[str, list[str]]", written.get("net") or {})
    client = HttpClient(replace(NetPolicy.allowing(net.get("allow", [])), setting="`net.allow`"))
    told = set[str]()
    for text in texts_in(written, ()):
        address = _WHOLE.match(text.text.partition(" ")[2] or text.text)
        if address is None or text.path[-1] not in _ADDRESSES or address[0] in told:
            continue
        told.add(address[0])
        try:
            client.check(address[0])
        except NetError as error:
            yield ConfigProblem(text.path, error.message, error.advice)
