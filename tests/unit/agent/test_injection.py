"""Arguments that the program sets from the data of a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from loom_core.agent import Agent, ApprovalDecision, Journal, Pending
from loom_core.errors import ConfigError
from loom_core.llm.messages import ToolMessage
from loom_core.testing import MockLLM, call
from loom_core.tools import AuditLog, PermissionRule, Permissions, Toolbox, tool

_INJECT = {"crm_*": {"customer_id": "customer"}}
_CONTEXT = {"customer": "C-17"}


@tool(name="crm_orders", read_only=True, open_world=False)
async def orders(customer_id: str, status: str = "open") -> str:
    """Return the orders of a customer."""
    return f"{customer_id} {status}"


@tool(name="crm_cancel")
async def cancel(customer_id: str, order: int) -> str:
    """Cancel an order."""
    return f"{customer_id} {order}"


def _agent(llm: MockLLM, **more: Any) -> Agent:
    return Agent(llm, toolbox=Toolbox([orders, cancel], inject=_INJECT), **more)


async def test_a_model_neither_sees_nor_sets_an_injected_argument() -> None:
    llm = MockLLM([call("crm_orders", status="paid"), "好"])
    await _agent(llm).run("订单？", context=_CONTEXT)
    assert llm.tool_results == ["C-17 paid"]
    assert "customer" not in str(llm.calls[0].tools).replace("orders of a customer", "")
    assert llm.calls[0].tools[1].parameters["required"] == ["order"]


@pytest.mark.parametrize("context", [_CONTEXT, {}])
async def test_a_value_of_the_model_is_refused(context: dict[str, Any]) -> None:
    llm = MockLLM([call("crm_orders", customer_id="C-99"), "好"])
    await _agent(llm).run("订单？", context=context)
    assert "`customer_id` of `crm_orders` is set by the program" in llm.tool_results[0]
    assert "C-17" not in llm.tool_results[0]


async def test_without_data_the_call_fails_and_does_nothing() -> None:
    llm = MockLLM([call("crm_orders"), "好"])
    await _agent(llm).run("订单？")
    assert "`customer_id` is required" in llm.tool_results[0]


async def test_rules_and_people_and_the_audit_see_the_real_arguments(tmp_path: Path) -> None:
    asked: list[Pending] = []

    async def approve(pending: Pending) -> ApprovalDecision:
        asked.append(pending)
        changed = {**pending.arguments, "order": 5}
        return ApprovalDecision(id=pending.id, action="edit", arguments=changed)

    rules = [PermissionRule(action="deny", tool="crm_*", args={"customer_id": "C-0*"})]
    llm = MockLLM([call("crm_cancel", order=4), "好"] * 2)
    audit = AuditLog(tmp_path / "audit.jsonl")
    agent = _agent(llm, permissions=Permissions(rules), approve=approve, audit=audit)
    await agent.run("取消", context=_CONTEXT)
    assert asked[0].arguments == {"customer_id": "C-17", "order": 4}
    assert llm.tool_results[0].startswith("C-17 5")
    shown = next(each.text for each in llm.calls[1].messages if isinstance(each, ToolMessage))
    assert '{"order": 5}' in shown  # a note for the model says what was changed, and nothing of the customer
    await agent.run("取消", context={"customer": "C-01"})
    assert len(asked) == 1
    assert '"customer_id":"C-17"' in (tmp_path / "audit.jsonl").read_text().replace(": ", ":")


async def test_a_search_for_tools_does_not_name_it() -> None:
    llm = MockLLM([call("tool_search", query="orders"), "好"])
    toolbox = Toolbox([orders], live=[lambda: (cancel,)], most_shown=1, inject=_INJECT)
    await Agent(llm, toolbox=toolbox).run("订单？", context=_CONTEXT)
    assert "Arguments: status." in llm.tool_results[0]
    assert "customer_id" not in llm.tool_results[0]


async def test_additional_tools_of_a_run_are_injected_too_and_a_resumed_run_has_the_same_data(
    tmp_path: Path,
) -> None:
    @tool(name="crm_note", read_only=True, open_world=False)
    async def note(customer_id: str) -> str:
        """Return a note."""
        return f"note {customer_id}"

    journal = Journal(tmp_path / "runs.db")
    failed = await _agent(MockLLM([]), journal=journal).run("x", context=_CONTEXT)
    llm = MockLLM([[call("crm_note"), call("crm_orders")], "好"])
    await _agent(llm, journal=journal).resume(failed.run_id, tools=[note])
    assert llm.tool_results == ["note C-17", "C-17 open"]
    assert "customer_id" not in str(llm.calls[0].tools)
    await journal.aclose()


def test_a_pattern_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(ConfigError, match="not a usable regular expression"):
        Toolbox([orders], inject={"re:(": {"customer_id": "customer"}})
