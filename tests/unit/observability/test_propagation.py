from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_core.observability.log_fields import current_fields, logging_with
from loom_core.observability.propagation import TRACE_KEYS, carried, continued, detached, parent_of, trace_of

TRACE = 0x4BF92F3577B34DA6A3CE929D0E0E4736
PARENT = f"00-{TRACE:032x}-00f067aa0ba902b7-01"


def test_what_is_carried_goes_on_elsewhere_unchanged():
    carrier = {"traceparent": PARENT, "tracestate": "vendor=1"}
    with continued(parent_of({**carrier, "baggage": "user=anna"})):
        assert trace_of() == TRACE
        assert carried() == carrier
    assert trace_of() == 0


def test_without_a_span_nothing_is_carried():
    assert carried() == {}


def test_work_that_is_detached_belongs_to_no_trace():
    with continued(parent_of({"traceparent": PARENT})):
        with detached():
            assert trace_of() == 0
            assert carried() == {}
        assert trace_of() == TRACE


def test_lines_of_work_that_is_detached_name_no_one():
    with logging_with({"caller": "爱丽丝", "request_id": "2"}):
        with detached():
            assert current_fields() == {}
            with logging_with({"run_id": "run_1"}):
                assert current_fields() == {"run_id": "run_1"}
        assert current_fields()["caller"] == "爱丽丝"


def test_nothing_carried_leaves_the_trace_as_it_is():
    with continued(parent_of({"traceparent": PARENT})), continued(parent_of({})):
        assert trace_of() == TRACE


def test_the_trace_of_a_context_is_told():
    assert trace_of(parent_of({"traceparent": PARENT})) == TRACE


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
    context = parent_of(carrier)
    assert context is None or trace_of(context) != 0
