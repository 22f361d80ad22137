from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.observability.log_fields import current_fields, logging_with
from loom_core.observability.propagation import (
    TRACE_KEYS,
    attach_context,
    detach_context,
    extract_context,
    inject_context,
    trace_id_of,
)

TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736
PARENT = f"00-{TRACE:032x}-00f067aa0ba902b7-01"


def test_what_is_carried_goes_on_elsewhere_unchanged():
    carrier = {"traceparent": PARENT, "tracestate": "vendor=1"}
    with attach_context(extract_context({**carrier, "baggage": "user=anna"})):
        assert trace_id_of() == TRACE
        assert inject_context() == carrier
    assert trace_id_of() == 0


def test_without_a_span_nothing_is_carried():
    assert inject_context() == {}


def test_work_that_is_detached_belongs_to_no_trace():
    with attach_context(extract_context({"traceparent": PARENT})):
        with detach_context():
            assert trace_id_of() == 0
            assert inject_context() == {}
        assert trace_id_of() == TRACE


def test_lines_of_work_that_is_detached_name_no_one():
    with logging_with({"caller": "爱丽丝", "request_id": "2"}):
        with detach_context():
            assert current_fields() == {}
            with logging_with({"run_id": "run_1"}):
                assert current_fields() == {"run_id": "run_1"}
        assert current_fields()["caller"] == "爱丽丝"


def test_nothing_carried_leaves_the_trace_as_it_is():
    with attach_context(extract_context({"traceparent": PARENT})), attach_context(extract_context({})):
        assert trace_id_of() == TRACE


def test_the_trace_of_a_context_is_told():
    assert trace_id_of(extract_context({"traceparent": PARENT})) == TRACE


@pytest.mark.slow
@given(
    st.one_of(
        st.none(),
        st.integers(),
        st.dictionaries(
            st.sampled_from([*TRACE_KEYS, "x"]), st.one_of(st.text(), st.integers(), st.binary())
        ),
        st.fixed_dictionaries({"traceparent": st.from_regex(r"00-[0-9a-f]{30,34}-[0-9a-f]{16}-0[01]")}),
        st.fixed_dictionaries({"traceparent": st.just(PARENT), "tracestate": st.text(min_size=500)}),
    )
)
def test_nonsense_is_no_parent_and_no_error(carrier: object):
    context = extract_context(carrier)
    assert context is None or trace_id_of(context) != 0
