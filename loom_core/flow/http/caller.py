"""The HTTP client of flows: rate limits, circuit breakers, secrets, and retries where they are safe."""

from __future__ import annotations

import logging
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, cast
from urllib.parse import quote, urlsplit
from uuid import uuid4

import anyio
from anyio import to_thread

from loom_core import keys
from loom_core.errors import ConfigError, LoomError, NetError
from loom_core.flow.config.models_endpoint import reference_in
from loom_core.flow.http.request import (
    Attempts,
    build_request,
    is_retryable,
    request_key,
    resolve_url,
    secret_texts,
)
from loom_core.flow.http.response import EndpointResult, parse_body
from loom_core.llm.hosted.limits import RateLimits
from loom_core.net import GuardedClient, NetPolicy
from loom_core.net.address import address_of
from loom_core.net.breaker import Breaker
from loom_core.net.policy import matches_any_host
from loom_core.net.retry import RetryPolicy, retry_after
from loom_core.net.ssrf_guard import resolve
from loom_core.net.url import host_of, redact_url
from loom_core.observability.families import FLOW_REQUEST_SECONDS, FLOW_REQUESTS
from loom_core.observability.metrics import process_metrics
from loom_core.observability.propagation import inject_context
from loom_core.observability.spans import FLOW_REQUEST
from loom_core.observability.tracing import AttributeValue, record_failure, span

if TYPE_CHECKING:
    import ssl
    from collections.abc import AsyncGenerator, Callable, Generator, Iterable
    from typing import Self

    from opentelemetry.trace import Span
    from pydantic import SecretStr

    from loom_core.flow.config.models import FlowFile, NetConfig
    from loom_core.flow.config.models_endpoint import EndpointConfig
    from loom_core.flow.expressions import ExpressionValues
    from loom_core.flow.http.request import FilledRequest
    from loom_core.net import HttpResponse, Resolver
    from loom_core.tools.interface import JsonValue

__all__ = [
    "HIDDEN",
    "EndpointCaller",
    "HostBreaker",
    "HostLimits",
    "RequestSpan",
    "Secrets",
    "mask_secrets",
    "request_span",
]


_KEEP_SECONDS = 4.0  # less than the 5 after which servers in Python and Node.js close a connection
_KEY = "Idempotency-Key"
_HARMLESS = frozenset({"GET", "HEAD"})
_RETRY = RetryPolicy(base=0.4, cap=8.0)


class EndpointCaller:
    """Sender of a flow file's requests, through one guarded client with a connection pool.

    It is safe to call from several tasks of one event loop. It closes at the end of its context, after the
    active requests have ended.

    Args:
        file: the network policy and `flow_url`.
        secrets: resolves and redacts secrets; by default from the environment and the keyring.
        retry: retry policy of pauses; each endpoint has its number of retries.
        resolve: resolver of host names.
        tls: TLS settings for certificates; by default the system's trusted ones.
        now: monotonic clock in seconds, for circuit breakers.

    Raises:
        ConfigError: an entry of `net.allow` is neither a host nor a network.
    """

    def __init__(
        self,
        file: FlowFile,
        *,
        secrets: Secrets | None = None,
        retry: RetryPolicy = _RETRY,
        resolve: Resolver = resolve,
        tls: ssl.SSLContext | None = None,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._base = file.flow_url
        self._policy = _policy(file.net)
        self._told_trace = _hosts(file.net.trace)
        self._client = GuardedClient(self._policy, resolve=resolve, tls=tls, keep_seconds=_KEEP_SECONDS)
        self._hosts = HostLimits(
            concurrency=file.net.concurrency,
            per_minute=file.net.per_minute,
            failures=file.net.breaker_failures,
            pause=file.net.breaker_pause,
            now=now,
        )
        self._retry = retry
        self.secrets = secrets or Secrets()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connection pool."""
        await self._client.aclose()

    def check(self, endpoint: EndpointConfig) -> None:
        """Check by name and port whether an endpoint's host is allowed; nothing is sent.

        Raises:
            ConfigError: there is no address.
            NetError: the host is not allowed.
        """
        address = resolve_url(endpoint.url, self._base)
        parts = address.split("/", 3)
        self._client.check("/".join(parts[:3]).partition("?")[0])

    async def call(
        self,
        endpoint: EndpointConfig,
        values: ExpressionValues,
        *,
        run_id: str = "",
        step_id: str = "",
        seconds: float | None = None,
    ) -> EndpointResult:
        """Send a request, with retries as the endpoint and its method allow.

        A request with side effects carries an `Idempotency-Key` made from the run and the step, so that it is
        the same after a crash; without a run, the key is unique for this call.

        Args:
            endpoint: the endpoint.
            values: values for its placeholders.
            run_id: id of the run.
            step_id: key of the step's visit in the run.
            seconds: total timeout, if less than the endpoint's `timeout_seconds`.

        Returns:
            The response, with any status.

        Raises:
            NetError: there is no response. Its `failure` says whether the request may have been carried out.
            InvalidInputError: a value is invalid in its place; nothing was sent.
            ConfigError: a secret does not exist, or must not be sent over an unencrypted connection; nothing
                was sent.
        """
        began = anyio.current_time()
        limit = endpoint.timeout_seconds if seconds is None else min(seconds, endpoint.timeout_seconds)
        await self.secrets.resolve_all(secret_texts(endpoint))
        request = build_request(endpoint, values, base=self._base, revealed=self.secrets.reveal)
        if request.has_secrets:
            self._check_target(request)
        key = _key_of(request, run_id, step_id)
        headers = {**request.headers, _KEY: key} if key else request.headers
        request = replace(request, headers=headers)
        attempts = Attempts(endpoint, until=began + limit)
        with request_span(request, run_id=run_id) as told:
            outcome = await self._send(self._with_trace_context(request), attempts)
            if isinstance(outcome, NetError):
                outcome = attempts.with_attempts(outcome)
                told.record_outcome(outcome, attempts=attempts.made)
            else:
                told.record_outcome(outcome.status, attempts=attempts.made)
        if isinstance(outcome, NetError):
            raise outcome
        return EndpointResult(
            outcome.status,
            {name: self.secrets.redact(value) for name, value in outcome.headers.items()},
            self.secrets.redact_json(parse_body(outcome)),
            attempts.made,
            anyio.current_time() - began,
            self.secrets.redact(redact_url(outcome.url)),
            key,
            attempts.maybe_done,
        )

    def preview(
        self, endpoint: EndpointConfig, values: ExpressionValues, *, step_id: str = ""
    ) -> FilledRequest:
        """Return the request that `call` would send, with `[secret]` for secrets, which are not resolved.

        Args:
            endpoint: the endpoint.
            values: values for its placeholders.
            step_id: as for `call`, of a future run; empty to show no `Idempotency-Key`.

        Raises:
            InvalidInputError: a value is invalid in its place.
            ConfigError: there is no address.
        """
        request = build_request(endpoint, values, base=self._base, revealed=mask_secrets)
        key = {_KEY: f"[run]:{step_id}"} if step_id and _takes_key(request) else {}
        url = request.url.replace(quote(HIDDEN, safe=""), HIDDEN)
        return replace(request, url=url, headers={**request.headers, **key})

    def _with_trace_context(self, request: FilledRequest) -> FilledRequest:
        """Add the trace context to a request, if its host may receive it."""
        host = host_of(urlsplit(request.url).hostname or "") or ""
        if not (self._told_trace and matches_any_host(self._told_trace, host)):
            return request
        written = {name.lower() for name in request.headers}
        trace = {name: value for name, value in inject_context().items() if "traceparent" not in written}
        return replace(request, headers={**trace, **request.headers})

    async def _send(self, request: FilledRequest, attempts: Attempts) -> HttpResponse | NetError:
        """Send a request until there is a final response or no attempt is left."""
        while True:
            outcome = await self._attempt(request, attempts)
            wait = self._wait_after(outcome, attempts)
            if wait is None:
                return outcome
            _log.info("%s: attempt %d follows in %.1f s", request.place, attempts.made + 1, wait)
            await anyio.sleep(wait)

    async def _attempt(self, request: FilledRequest, attempts: Attempts) -> HttpResponse | NetError:
        attempts.made += 1
        try:
            with anyio.move_on_after(attempts.left) as waiting:
                async with self._hosts.acquire(request.place) as note:
                    waiting.deadline = inf  # from here on, the client limits the time
                    response = await self._client.request(
                        request.method,
                        request.url,
                        headers=request.headers,
                        content=request.content,
                        seconds=max(attempts.left, 0.0),
                        repeatable=attempts.endpoint.repeatable,
                    )
                    note(response.status)
                attempts.note(response.status)
                return response
        except NetError as error:
            failed = error  # redacted outside of the handler, because a chained error would keep the original
        else:
            failed = NetError(
                f"{request.place} got no request: too many others were waiting.",
                advice="Try again later, or raise `net.concurrency` or `net.per_minute`.",
                failure="unavailable",
            )
        attempts.note(failed)
        return self.secrets.redact_error(failed)

    def _wait_after(self, outcome: HttpResponse | NetError, attempts: Attempts) -> float | None:
        """Return the seconds until the next attempt; None if there is none."""
        endpoint = attempts.endpoint
        what = outcome if isinstance(outcome, NetError) else outcome.status
        if attempts.made > endpoint.retries or not is_retryable(what, repeatable=endpoint.repeatable):
            return None
        asked = None if isinstance(outcome, NetError) else retry_after(outcome.headers)
        wait = (asked or 0.0) + self._retry.pause(attempts.made)
        return wait if wait < attempts.left else None

    def _check_target(self, request: FilledRequest) -> None:
        """Refuse to send a secret over an unencrypted connection.

        Raises:
            ConfigError: it would be sent unencrypted over the internet.
        """
        parts = urlsplit(request.url)
        host = host_of(parts.hostname or "") or ""
        address = address_of(host)
        inside = self._policy.allows_host(host) or (
            address is not None and self._policy.allows_address(address)
        )
        if parts.scheme != "https" and not inside:
            raise ConfigError(
                f"A secret is not sent to {host} over http, where others could read it.",
                advice="Write https://, or name the host in `net.allow` if it is one of your own network.",
            )


def _policy(net: NetConfig) -> NetPolicy:
    return replace(
        NetPolicy.allowing(net.allow),
        only_hosts=_hosts(net.only),
        max_bytes=net.max_bytes,
        total_seconds=net.seconds,
        setting="`net.allow` of the flow file",
        smaller="Have the API answer with less, or raise `net.max_bytes` of the flow file.",
    )


def _hosts(written: Iterable[str]) -> frozenset[str]:
    """Return host names in canonical form; `*.example.org` means all subdomains."""
    return frozenset(host_of(host) or host.lower() for host in written)


def _takes_key(request: FilledRequest) -> bool:
    """Return whether an idempotency key is sent: for side effects, unless the file sets one itself."""
    written = any(name.lower() == _KEY.lower() for name in request.headers)
    return not written and request.method not in _HARMLESS


def _key_of(request: FilledRequest, run_id: str, step_id: str) -> str:
    """Return the idempotency key of a request; empty for none."""
    if not _takes_key(request):
        return ""
    return request_key(run_id, step_id) if run_id else uuid4().hex


_MAX_COUNT = 1000
_GATEWAY_FAILURES = frozenset({502, 503, 504})


class HostFailureError(NetError):
    """A 502, 503 or 504 response, as a failure for the circuit breaker."""


class HostBreaker(Breaker):
    """Circuit breaker of one host; see `Breaker`.

    Failures are connection errors, timeouts, and 502, 503 and 504. Any other status is a response: a 500
    often concerns a single request, and must not open the circuit for others.
    """

    def is_transient(self, error: LoomError) -> bool | None:
        """Return whether an error counts as a failure of the host."""
        if not isinstance(error, NetError) or error.failure == "refused":
            return None
        return isinstance(error, HostFailureError) or error.failure in {
            "connection",
            "interrupted",
            "timeout",
        }


@dataclass(frozen=True, slots=True)
class _Host:
    breaker: HostBreaker
    limits: RateLimits


class HostLimits:
    """Rate limits and circuit breakers by host.

    Args:
        concurrency: maximum number of concurrent requests, to all hosts.
        per_minute: maximum number of requests to one host in a minute; None for no limit.
        failures: number of consecutive failures that opens the circuit.
        pause: initial seconds until the circuit is half-open.
        now: monotonic clock in seconds.
    """

    def __init__(
        self,
        *,
        concurrency: int,
        per_minute: int | None = None,
        failures: int,
        pause: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._slots = anyio.Semaphore(concurrency)
        self._per_minute = per_minute
        self._failures = failures
        self._pause = pause
        self._now = now
        self._hosts: OrderedDict[str, _Host] = OrderedDict()

    @asynccontextmanager
    async def acquire(self, place: str) -> AsyncGenerator[Callable[[int], None]]:
        """Context of one request: wait for the limits, and record the outcome for the breaker.

        It yields a function that takes the status of the response.

        Args:
            place: host and port.

        Raises:
            NetError: of failure `unavailable`, if the circuit is open.
        """
        host = self._host(place)
        status = 0

        def note(answered: int) -> None:
            nonlocal status
            status = answered

        # The host's own limit first: waiting for it must not block requests to other hosts.
        async with host.limits.acquire(), self._slots:
            try:
                with host.breaker.guard(place, refuse=_rejection):
                    yield note
                    if status in _GATEWAY_FAILURES:
                        raise HostFailureError(f"{place} answered with status {status}.")
            except HostFailureError:
                return  # the response is valid all the same

    def _host(self, place: str) -> _Host:
        if place not in self._hosts:
            breaker = HostBreaker(failures=self._failures, first_pause=self._pause, now=self._now)
            self._hosts[place] = _Host(breaker, RateLimits(rpm=self._per_minute))
            if len(self._hosts) > _MAX_COUNT:
                self._hosts.popitem(last=False)
        self._hosts.move_to_end(place)
        return self._hosts[place]


def _rejection(message: str, left: float) -> NetError:
    when = f"Try again in {left:.0f} seconds." if left else "Try again later."
    return NetError(message, advice=when, failure="unavailable")


_ERRORS = 400  # statuses from here on are errors


class RequestSpan:
    """Span of a request.

    Attributes:
        status: outcome for the metrics; `cancelled` until there is one.
    """

    def __init__(self, started: Span) -> None:
        self.status = "cancelled"
        self._span = started

    def record_outcome(self, outcome: NetError | int, *, attempts: int) -> None:
        """Record the final outcome.

        Args:
            outcome: status of the last response, or the error.
            attempts: number of attempts.
        """
        if attempts > 1:
            self._span.set_attribute("http.request.resend_count", attempts - 1)
        if isinstance(outcome, NetError):
            self.status = outcome.failure
            record_failure(self._span, outcome.failure)
            return
        self.status = f"{outcome // 100}xx" if outcome < 600 else "other"
        self._span.set_attribute("http.response.status_code", outcome)
        if outcome >= _ERRORS:
            record_failure(self._span, str(outcome))


@contextmanager
def request_span(request: FilledRequest, *, run_id: str) -> Generator[RequestSpan]:
    """Start the span of a request with all of its attempts; only host and port of its address are recorded.

    Args:
        request: the request.
        run_id: id of the run; empty for none.
    """
    host, _, port = request.place.rpartition(":")
    attributes: dict[str, AttributeValue | None] = {
        "http.request.method": request.method,
        "server.address": host,
        "server.port": int(port),
        "loom.run.id": run_id or None,
    }
    began = perf_counter()
    with span(FLOW_REQUEST, attributes) as started:
        told = RequestSpan(started)
        try:
            yield told
        finally:
            process_metrics.add(FLOW_REQUESTS, request.method, told.status)
            process_metrics.observe(FLOW_REQUEST_SECONDS, perf_counter() - began, request.method)


HIDDEN = "[secret]"
"""Placeholder of a secret."""


class Secrets:
    """Secrets of `env:NAME` and `keyring:NAME`: each is resolved once, and redacted from all output.

    Args:
        resolve: resolves a reference to its secret; may block.
    """

    def __init__(self, resolve: Callable[[str], SecretStr] = keys.resolve) -> None:
        self._resolve = resolve
        self._known: dict[str, SecretStr] = {}
        self._finding = anyio.Lock()

    def __repr__(self) -> str:
        return f"<Secrets: {len(self._known)}>"

    async def resolve_all(self, texts: Iterable[str]) -> None:
        """Resolve all references in texts of headers and query parameters.

        Raises:
            ConfigError: a secret does not exist.
        """
        for reference in filter(None, map(reference_in, texts)):
            if reference in self._known:
                continue
            async with self._finding:  # a keyring may take a second, or ask the user, so it is read only once
                if reference not in self._known:
                    self._known[reference] = await to_thread.run_sync(self._resolve, reference)

    def reveal(self, text: str) -> str:
        """Replace a resolved reference in a text by its secret."""
        reference = reference_in(text)
        if not reference:
            return text
        return text.removesuffix(reference) + self._known[reference].get_secret_value()

    def redact(self, text: str) -> str:
        """Redact resolved secrets from a text."""
        return keys.redact(text, self._known.values()) if self._known else text

    def redact_json(self, value: JsonValue) -> JsonValue:
        """Redact resolved secrets from JSON, in keys and values."""
        return _redact_json(value, self.redact) if self._known else value

    def redact_error(self, error: NetError) -> NetError:
        """Redact resolved secrets from an error, and drop its cause."""
        return NetError(self.redact(error.message), advice=error.advice, failure=error.failure)


def mask_secrets(text: str) -> str:
    """Replace a reference in a text by `[secret]`."""
    reference = reference_in(text)
    return text.removesuffix(reference) + HIDDEN if reference else text


def _redact_json(value: JsonValue, redacted: Callable[[str], str]) -> JsonValue:
    if isinstance(value, str):
        return redacted(value)
    if isinstance(value, Mapping):
        members = cast("Mapping[str, JsonValue]", value).items()
        return {redacted(name): _redact_json(each, redacted) for name, each in members}
    if isinstance(value, list):
        return [_redact_json(each, redacted) for each in value]
    return value


_log = logging.getLogger(__name__)
