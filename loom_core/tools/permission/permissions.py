"""Permissions: allow a tool call, deny it, or require approval.

The strictest matching rule counts: deny before ask before allow. The order and specificity of rules only
decide which of several rules of the same action is named as the reason (the most specific, then the first).
So an added rule can forbid more, and an `allow` never lifts another rule; it only replaces the default:

- a tool that only reads, and only from a closed set of things, may run;
- any other needs approval: it may change something, or send data to the outside.

An approval for a run, or for always, holds until the tool's definition changes. A tool with an
`approval_reason` needs approval even if a rule allows it: each time; or, if it keeps approvals
(`keeps_approval`), until a person has approved its current version. Only if the operator trusts its provider
(`is_trusted`), a rule or `otherwise` that allows its calls approves it, too. Denied calls stay denied.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from loom_core.errors import LoomError
from loom_core.tools.calls import Verdict
from loom_core.tools.interface import Tool
from loom_core.tools.permission.rule import CompiledRule, PermissionRule

__all__ = ["PermissionDecision", "Permissions", "ToolIdentity", "UnapprovedToolError", "identity"]

_STRICTNESS: Mapping[Verdict, int] = {"deny": 2, "ask": 1, "allow": 0}
_MOST_KEPT = 10_000


class UnapprovedToolError(LoomError):
    """A required tool is not approved, and no operator can be asked; the advice says how to approve it.

    Attributes:
        said: message for users.
    """

    def __init__(self, tool: Tool, *, said: str) -> None:
        message = f"The tool {tool.name} cannot be called. {tool.approval_reason}"
        super().__init__(message, advice=tool.approval_advice)
        self.said = said


@dataclass(frozen=True, slots=True)
class PermissionDecision:
    """Decision about a call.

    Attributes:
        action: whether it may run.
        reason: why, in a sentence, for people and models.
        rule: the rule that decided; None if none did.
        of_tool: whether only the tool needs approval: the rules allow the call.
    """

    action: Verdict
    reason: str
    rule: PermissionRule | None = None
    of_tool: bool = False


@dataclass(frozen=True, slots=True)
class ToolIdentity:
    """The version of a tool that a person approved.

    Attributes:
        name: its display name.
        digest: its `Tool.fingerprint`.
    """

    name: str
    digest: str


def identity(tool: Tool) -> ToolIdentity:
    """Return the identity of a tool's current version."""
    return ToolIdentity(tool.name, tool.fingerprint)


@dataclass(slots=True)
class _Shared:
    """State that the permissions of all runs share."""

    base: str
    otherwise: Verdict
    rules: tuple[CompiledRule, ...] = ()
    about: dict[tuple[str, str, str], tuple[CompiledRule, ...]] = field(
        default_factory=dict[tuple[str, str, str], tuple[CompiledRule, ...]]
    )
    approved: dict[str, ToolIdentity] = field(default_factory=dict[str, ToolIdentity])


class Permissions:
    """Decides about calls by the rules of this module. Nothing here waits or does I/O.

    Args:
        rules: the rules.
        base: base of relative paths in rules and arguments; by default the working directory. Links are not
            resolved: the tool has to check them.
        otherwise: action for calls that no rule matches and that are not harmless.
        approved: tools that a person approved for always; see `approved`.
    """

    def __init__(
        self,
        rules: Iterable[PermissionRule] = (),
        *,
        base: Path | None = None,
        otherwise: Literal["allow", "ask", "deny"] = "ask",
        approved: Iterable[ToolIdentity] = (),
    ) -> None:
        folder = (Path.cwd() if base is None else base.absolute()).as_posix()
        self._shared = _Shared(folder, otherwise, approved={each.name: each for each in approved})
        self._approved_here: dict[str, ToolIdentity] = {}
        self._free: frozenset[ToolIdentity] = frozenset()
        self.rules = tuple(rules)

    @property
    def rules(self) -> tuple[PermissionRule, ...]:
        """The rules. Setting them takes effect with the next decision, for all runs."""
        return tuple(each.rule for each in self._shared.rules)

    @rules.setter
    def rules(self, rules: Sequence[PermissionRule]) -> None:
        self._shared.rules = tuple(CompiledRule(rule, base=self._shared.base) for rule in rules)
        self._shared.about.clear()

    @property
    def approved(self) -> tuple[ToolIdentity, ...]:
        """Tools that a person approved for always; callers may store them."""
        return tuple(self._shared.approved.values())

    def for_run(self, *, free: Iterable[Tool] = ()) -> Permissions:
        """Return these permissions with separate approvals for one run.

        Args:
            free: tools whose calls need no approval, unless a rule asks for it.
        """
        run = object.__new__(Permissions)
        run._shared = self._shared
        run._approved_here = {}
        run._free = frozenset(map(identity, free))
        return run

    def remember(self, tool: Tool | ToolIdentity, *, always: bool = False) -> None:
        """Remember that a person approved a tool: its calls need no further approval.

        Args:
            tool: the tool, or the version that was approved.
            always: for all runs; else only for this object.
        """
        known = tool if isinstance(tool, ToolIdentity) else identity(tool)
        (self._shared.approved if always else self._approved_here)[known.name] = known

    def decide(self, tool: Tool, arguments: Mapping[str, Any], *, source: str = "") -> PermissionDecision:
        """Decide about a call.

        Args:
            tool: the tool.
            arguments: its arguments, validated and with defaults.
            source: the caller.
        """
        decision = self._by_rules(tool, arguments, source)
        if decision.action == "deny":
            return decision
        if (reason := tool.approval_reason) and not (
            tool.keeps_approval and self._is_preapproved(tool, decision)
        ):
            of_tool = tool.keeps_approval and decision.action == "allow"
            rule = decision.rule if decision.action == "ask" else None
            return PermissionDecision("ask", reason, rule, of_tool=of_tool)
        if decision.action == "ask" and (
            self._is_approved(tool) or (decision.rule is None and identity(tool) in self._free)
        ):
            return PermissionDecision("allow", "It was approved before.")
        return decision

    def _is_preapproved(self, tool: Tool, decision: PermissionDecision) -> bool:
        """Return whether a tool is approved for this run, or trusted and allowed by the operator."""
        by_operator = decision.rule is not None or self._shared.otherwise == "allow"
        return self._is_approved(tool) or (tool.is_trusted and decision.action == "allow" and by_operator)

    def _by_rules(self, tool: Tool, arguments: Mapping[str, Any], source: str) -> PermissionDecision:
        best: CompiledRule | None = None
        for each in self._about(tool, source):
            if (best is None or _before(each, best)) and each.fits(arguments):
                best = each
        if best is not None:
            return PermissionDecision(best.action, best.reason, best.rule)
        does = tool.annotations
        if does.read_only and not does.open_world:
            return PermissionDecision("allow", "It only reads what is here.")
        return PermissionDecision(
            self._shared.otherwise,
            "It reaches beyond this machine or a closed set of things."
            if does.read_only
            else "It may remove or overwrite something."
            if does.destructive
            else "It may change something.",
        )

    def _about(self, tool: Tool, source: str) -> tuple[CompiledRule, ...]:
        """Return the rules for a tool, whatever the arguments."""
        if not self._shared.rules:
            return ()
        key = (tool.name, tool.wire_name, source)
        kept = self._shared.about
        if key not in kept:
            if len(kept) >= _MOST_KEPT:
                kept.clear()
            kept[key] = tuple(rule for rule in self._shared.rules if rule.is_about(key[:2], source))
        return kept[key]

    def _is_approved(self, tool: Tool) -> bool:
        known = [each.get(tool.name) for each in (self._approved_here, self._shared.approved)]
        return any(known) and identity(tool) in known


def _before(rule: CompiledRule, other: CompiledRule) -> bool:
    """Return whether a rule takes precedence over an earlier one."""
    mine, its = _STRICTNESS[rule.action], _STRICTNESS[other.action]
    return mine > its or (mine == its and rule.rule.specificity > other.rule.specificity)
