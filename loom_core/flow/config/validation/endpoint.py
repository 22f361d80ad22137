"""What a model alone cannot say of requests: where their addresses lead, and what belongs in no body."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from loom_core.config_file import ConfigPath, ConfigProblem
from loom_core.errors import UnreadableTextError
from loom_core.flow.config.models_values import reference_in
from loom_core.flow.config.references import Text, texts_in, unreadable
from loom_core.flow.expressions.criteria import check_criterion

if TYPE_CHECKING:
    from loom_core.flow.config.models_endpoint import Criterion, EndpointConfig

__all__ = [
    "address_problems",
    "criteria_problems",
    "criteria_texts",
    "endpoint_problems",
    "endpoint_texts",
    "secret_problems",
]

_SECRETS = "Write secrets into `headers` or `query`, where they are hidden from logs and models."


def address_problems(url: str, path: ConfigPath, *, flow_url: str) -> Iterator[ConfigProblem]:
    """What is wrong with an address besides its form: there is nothing that it is put behind."""
    if not url.lower().startswith(("https://", "http://")) and not flow_url:
        what = f"the path {url[:80]!r} is put behind `flow_url`" if url else "`flow_url` is asked"
        yield ConfigProblem(
            path, f"{what}, which is not there.", 'Write "flow_url": "https://…", or a whole address.'
        )


def endpoint_problems(
    endpoint: EndpointConfig, path: ConfigPath, *, flow_url: str
) -> Iterator[ConfigProblem]:
    """What is wrong with a request."""
    yield from address_problems(endpoint.url, (*path, "url"), flow_url=flow_url)
    yield from secret_problems(texts_in(endpoint.body, (*path, "body")))
    yield from criteria_problems(endpoint.success_criteria, (*path, "successCriteria"))


def secret_problems(texts: Iterator[Text]) -> Iterator[ConfigProblem]:
    """References to secrets where they are not looked up."""
    for text in texts:
        if reference_in(text.text):
            yield ConfigProblem(text.path, "a secret is not looked up here.", _SECRETS)


def endpoint_texts(endpoint: EndpointConfig, path: ConfigPath) -> Iterator[Text]:
    """Everything in a request that is filled in."""
    yield Text((*path, "url"), endpoint.url, "url")
    yield from texts_in({**endpoint.headers}, (*path, "headers"))
    yield from texts_in(endpoint.query or {}, (*path, "query"))
    yield from texts_in(endpoint.body, (*path, "body"))
    yield Text((*path, "result"), endpoint.result, "expression")
    yield Text((*path, "failure"), endpoint.failure)
    yield from criteria_texts(endpoint.success_criteria, (*path, "successCriteria"))


def criteria_texts(criteria: Sequence[Criterion], path: ConfigPath) -> Iterator[Text]:
    """What criteria look at, as far as they can be read."""
    for index, criterion in enumerate(criteria):
        if criterion.type == "simple":
            yield Text((*path, index, "condition"), criterion.condition, "condition")
        elif criterion.context:
            yield Text((*path, index, "context"), criterion.context, "expression")


def criteria_problems(criteria: Sequence[Criterion], path: ConfigPath) -> Iterator[ConfigProblem]:
    """What is wrong with criteria that are no conditions."""
    for index, criterion in enumerate(criteria):
        if criterion.type == "simple":
            if criterion.context:
                yield ConfigProblem(
                    (*path, index, "context"), "a condition names itself what it looks at.", "Leave it out."
                )
            continue
        if not criterion.context:
            yield ConfigProblem(
                (*path, index),
                f"a criterion of the type {criterion.type} needs a context.",
                'Write "context": "$response.body".',
            )
        try:
            check_criterion(criterion.model_copy(update={"context": "$response.body"}))
        except UnreadableTextError as error:
            yield unreadable((*path, index, "condition"), error)
