"""Which calls may run, which may not, and which a person is asked about.

Of all rules that fit a call the strictest counts: deny before ask before allow. In which order they are
written, and how closely they say what they are about, makes no difference: that only tells which of several
rules of the same action is named as the reason (the one that says it most closely, then the first). So a rule
that is added can forbid more, and an `allow` never lifts what another rule says; it only takes the place of
what holds without any rule:

- a tool that only reads, and only from a closed set of things, may run;
- any other is asked about: it may change something, or tell what it knows to somebody outside.

What a person has approved for a run, or for always, is not asked about again, until the tool says something
else of itself. A tool that has an `approval_reason` is asked about whatever allows it: each time; or, where
an approval is kept (`keeps_approval`), until a person has approved it as it is now. Only where the operator
trusts who offers it (`is_trusted`), what allows its calls (a rule, or `otherwise`) is its approval, too. What
is denied stays denied.
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

__all__ = ["Decision", "Permissions", "ToolIdentity", "UnapprovedToolError", "identity"]

_STRICTNESS: Mapping[Verdict, int] = {"deny": 2, "ask": 1, "allow": 0}
_MOST_KEPT = 10_000


class UnapprovedToolError(LoomError):
    """A tool is wanted that no operator has approved, where none can be asked; the advice is how they do.

    Attributes:
        said: what users are told.
    """

    def __init__(self, tool: Tool, *, said: str) -> None:
        message = f"The tool {tool.name} cannot be called. {tool.approval_reason}"
        super().__init__(message, advice=tool.approval_advice)
        self.said = said


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a call.

    Attributes:
        action: whether it may run.
        reason: why, in a sentence, for people and models.
        rule: which rule said so; None where none did.
        of_tool: whether only the tool has to be approved: the rules allow the call.
    """

    action: Verdict
    reason: str
    rule: PermissionRule | None = None
    of_tool: bool = False


@dataclass(frozen=True, slots=True)
class ToolIdentity:
    """A tool as it was when somebody approved it.

    Attributes:
        name: what people call it.
        digest: its `Tool.fingerprint`.
    """

    name: str
    digest: str


def identity(tool: Tool) -> ToolIdentity:
    """What a tool is known by: another as soon as what it says of itself changes."""
    return ToolIdentity(tool.name, tool.fingerprint)


@dataclass(slots=True)
class _Shared:
    """What the permissions of all runs have in common."""

    base: str
    otherwise: Verdict
    rules: tuple[CompiledRule, ...] = ()
    about: dict[tuple[str, str, str], tuple[CompiledRule, ...]] = field(
        default_factory=dict[tuple[str, str, str], tuple[CompiledRule, ...]]
    )
    approved: dict[str, ToolIdentity] = field(default_factory=dict[str, ToolIdentity])


class Permissions:
    """Decides about calls; see the module for how. Nothing here waits or does I/O.

    Args:
        rules: what is written.
        base: what relative paths, of rules and of arguments, are relative to; the working directory by
            default. Where links lead is not looked at: that is for the tool to see to.
        otherwise: what becomes of calls that no rule fits and that are not harmless.
        approved: tools that a person has approved for always; see `approved`.
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
        self.rules = tuple(rules)

    @property
    def rules(self) -> tuple[PermissionRule, ...]:
        """What is written. Setting it counts from the next decision on, for all runs."""
        return tuple(each.rule for each in self._shared.rules)

    @rules.setter
    def rules(self, rules: Sequence[PermissionRule]) -> None:
        self._shared.rules = tuple(CompiledRule(rule, base=self._shared.base) for rule in rules)
        self._shared.about.clear()

    @property
    def approved(self) -> tuple[ToolIdentity, ...]:
        """Tools that a person has approved for always, to be kept by who wants to."""
        return tuple(self._shared.approved.values())

    def for_run(self) -> Permissions:
        """The same permissions, with a memory of their own for what is approved for one run."""
        run = object.__new__(Permissions)
        run._shared = self._shared
        run._approved_here = {}
        return run

    def remember(self, tool: Tool | ToolIdentity, *, always: bool = False) -> None:
        """A person has approved a tool: its calls are not asked about again, here or anywhere.

        Args:
            tool: as it is now, or as it was when they did.
            always: for all runs; else only where this object is asked.
        """
        known = tool if isinstance(tool, ToolIdentity) else identity(tool)
        (self._shared.approved if always else self._approved_here)[known.name] = known

    def decide(self, tool: Tool, arguments: Mapping[str, Any], *, source: str = "") -> Decision:
        """What becomes of a call.

        Args:
            tool: what is called.
            arguments: what it is called with, checked and with defaults.
            source: who calls.
        """
        decision = self._by_rules(tool, arguments, source)
        if decision.action == "deny":
            return decision
        if (reason := tool.approval_reason) and not (
            tool.keeps_approval and self._is_preapproved(tool, decision)
        ):
            of_tool = tool.keeps_approval and decision.action == "allow"
            rule = decision.rule if decision.action == "ask" else None
            return Decision("ask", reason, rule, of_tool=of_tool)
        if decision.action == "ask" and self._is_approved(tool):
            return Decision("allow", "It was approved before.")
        return decision

    def _is_preapproved(self, tool: Tool, decision: Decision) -> bool:
        """Whether a tool was approved for this run, or by an operator who trusts its origin and allows it."""
        by_operator = decision.rule is not None or self._shared.otherwise == "allow"
        return self._is_approved(tool) or (tool.is_trusted and decision.action == "allow" and by_operator)

    def _by_rules(self, tool: Tool, arguments: Mapping[str, Any], source: str) -> Decision:
        best: CompiledRule | None = None
        for each in self._about(tool, source):
            if (best is None or _before(each, best)) and each.fits(arguments):
                best = each
        if best is not None:
            return Decision(
                best.action, best.rule.reason or f"A rule says so: {best.rule.summary}.", best.rule
            )
        does = tool.annotations
        if does.read_only and not does.open_world:
            return Decision("allow", "It only reads what is here.")
        return Decision(
            self._shared.otherwise,
            "It reaches beyond this machine or a closed set of things."
            if does.read_only
            else "It may remove or overwrite something."
            if does.destructive
            else "It may change something.",
        )

    def _about(self, tool: Tool, source: str) -> tuple[CompiledRule, ...]:
        """The rules that are about a tool, whatever the arguments."""
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
    """Whether a rule counts before one that is written before it."""
    mine, its = _STRICTNESS[rule.action], _STRICTNESS[other.action]
    return mine > its or (mine == its and rule.rule.specificity > other.rule.specificity)
