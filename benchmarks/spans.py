"""Cost of a span: without an SDK, and with the OpenTelemetry SDK and its queue.

    python benchmarks/spans.py

Each figure is the best of several rounds, in microseconds for one span with four attributes.
"""

from __future__ import annotations

from collections.abc import Callable
from timeit import repeat

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult

from loom_core.observability.propagation import inject_context
from loom_core.observability.spans import CHAT
from loom_core.observability.tracing import LoomTracer, span

_NUMBER = 5000
_ROUNDS = 9
_ATTRIBUTES = {
    "gen_ai.operation.name": "chat",
    "gen_ai.provider.name": "deepseek",
    "gen_ai.request.model": "deepseek-chat",
    "gen_ai.request.max_tokens": 4096,
}


class _Nowhere(SpanExporter):
    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS


def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(_Nowhere()))
    tracer = LoomTracer(provider=provider)

    def without() -> None:
        with span(CHAT, _ATTRIBUTES):
            pass

    def within() -> None:
        with span(CHAT, _ATTRIBUTES, tracer=tracer):
            pass

    told: dict[str, Callable[[], object]] = {
        "a span without an SDK": without,
        "a span with the SDK": within,
        "asking what to carry": inject_context,
    }
    for name, run in told.items():
        best = min(repeat(run, number=_NUMBER, repeat=_ROUNDS)) / _NUMBER
        print(f"{name:<24} {1e6 * best:6.1f} µs")
    provider.shutdown()


if __name__ == "__main__":
    main()
