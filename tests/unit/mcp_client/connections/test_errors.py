from __future__ import annotations

from loom_core.mcp_client.connections.errors import Fault, Faults, leaf


def test_a_fault_comes_back_once_and_to_whom_it_belongs():
    faults, others = Faults(), Faults()
    fault = Fault("busy", "has no room")
    data = faults.note(fault)
    assert others.take(data) is None
    assert faults.take(data) is fault
    assert faults.take(data) is None


def test_a_server_cannot_make_one_up():
    faults = Faults()
    for data in (None, "x", {}, {"loom/fault": 1}, {"loom/fault": "0"}, ["loom/fault"]):
        assert faults.take(data) is None


def test_faults_that_no_one_asks_for_are_forgotten():
    faults = Faults()
    first = faults.note(Fault("busy", "1"))
    for _ in range(1000):
        last = faults.note(Fault("busy", "2"))
    assert faults.take(first) is None
    assert faults.take(last) is not None


def test_the_leaf_of_groups_is_what_went_wrong():
    error = OSError("x")
    assert leaf(ExceptionGroup("a", [ExceptionGroup("b", [error]), ValueError()])) is error
    assert leaf(error) is error
