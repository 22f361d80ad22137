"""Checks of profiles that use other profiles: names, cycles, depth, compositions and approvers."""

from __future__ import annotations

import difflib
from graphlib import CycleError, TopologicalSorter
from typing import TYPE_CHECKING, cast

from loom_agent.profiles.profile_config import COMPOSITIONS
from loom_core.agent.request import MAX_DEPTH
from loom_core.config_file import ConfigProblem
from loom_core.tools.patterns import linear_search

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from loom_agent.profiles.profile_config import HandoffConfig, ProfileConfig, RouterConfig
    from loom_core.config_file import ConfigPath

__all__ = ["find_team_problem"]

_OF_COMPOSITIONS = frozenset(
    {*COMPOSITIONS, "description", "budget", "call_limits", "priority", "approvals", "memory", "context"}
)
_OF_ROUTERS = _OF_COMPOSITIONS | {"model"}


def find_team_problem(profiles: Mapping[str, ProfileConfig]) -> ConfigProblem | None:
    """Return the first problem of profiles that use other profiles, with its place; None if there is none."""
    return next(_problems(profiles), None)


def _problems(profiles: Mapping[str, ProfileConfig]) -> Iterator[ConfigProblem]:
    """Yield the problems; each check relies on those before it."""
    for name, profile in profiles.items():
        if profile.members:
            yield from _check_keys(("profiles", name), profile)
            yield from _check_members(("profiles", name), profile, profiles)
    yield from _check_cycles(profiles)
    for name in profiles:
        if (depth := _depth(name, profiles)) > MAX_DEPTH:
            yield ConfigProblem(
                ("profiles", name),
                f"{depth} levels of profiles are below this one; at most {MAX_DEPTH} are possible.",
                "Let it use the lower ones directly.",
            )


def _check_keys(path: ConfigPath, profile: ProfileConfig) -> Iterator[ConfigProblem]:
    """Check that a composition is of one kind, and has no settings of an agent."""
    kind = profile.composition
    if not kind:
        return
    allowed = _OF_ROUTERS if kind == "router" else _OF_COMPOSITIONS
    for key in sorted(profile.model_fields_set):
        if key in COMPOSITIONS and key != kind:
            yield ConfigProblem(
                (*path, key),
                f"a profile is one composition: `{kind}` or `{key}`.",
                "Make two profiles of it.",
            )
        elif key not in allowed:
            yield ConfigProblem(
                (*path, key), f"`{key}` has no effect in a profile with `{kind}`.", "Set it in its members."
            )


def _check_members(
    path: ConfigPath, profile: ProfileConfig, profiles: Mapping[str, ProfileConfig]
) -> Iterator[ConfigProblem]:
    seen: set[str] = set()
    for place, name in profile.members.items():
        at = (*path, *place)
        if name not in profiles:
            yield _unknown(at, name, "profile", profiles)
            continue
        if name in seen and not profile.chain:
            yield ConfigProblem(at, f"{name!r} is listed twice.", "Remove one of them.")
        seen.add(name)
        if profile.agents and not profiles[name].description:
            yield ConfigProblem(
                at,
                f"the profile {name!r} has no description, so no model knows when to call it.",
                "Write its purpose into `description`.",
            )
        yield from _check_approvals(at, profile, name, profiles[name])
    yield from _check_workflow((*path, "workflow"), profile.workflow)
    if profile.router is not None:
        yield from _check_router((*path, "router"), profile, profile.router, profiles)
    if profile.handoff is not None:
        yield from _check_handoff((*path, "handoff"), profile.handoff, profiles)


def _check_approvals(
    at: ConfigPath, profile: ProfileConfig, name: str, member: ProfileConfig
) -> Iterator[ConfigProblem]:
    """Check that approvers of a member's calls are not bypassed: the outer run asks for these approvals."""
    own, inner = profile.approvals, member.approvals
    if inner.who and sorted(own.who) != sorted(inner.who):
        yield ConfigProblem(
            at,
            f"{name!r} names who decides about its calls, but here this profile's approvers would decide.",
            f"Write the same names into `approvals.who` of this profile: {', '.join(inner.who)}.",
        )
    if inner.via_tool == "off" and own.via_tool != "off":
        yield ConfigProblem(
            at,
            f"{name!r} takes no decisions from a tool, but this profile does.",
            'Write "via_tool": "off" into `approvals` of this profile, too.',
        )


def _check_workflow(path: ConfigPath, workflow: Mapping[str, list[str]]) -> Iterator[ConfigProblem]:
    for name, after in workflow.items():
        for number, each in enumerate(after):
            if each not in workflow:
                yield _unknown((*path, name, number), each, "step", workflow)
                return
    if cycle := _find_cycle(workflow):
        yield ConfigProblem(
            (*path, cycle[0]), f"the steps wait for each other: {' → '.join(cycle)}.", "Remove one of these."
        )


def _check_router(
    path: ConfigPath, profile: ProfileConfig, router: RouterConfig, profiles: Mapping[str, ProfileConfig]
) -> Iterator[ConfigProblem]:
    if router.default and router.default not in router.routes:
        yield _unknown((*path, "default"), router.default, "route", router.routes)
    for name, route in router.routes.items():
        at = (*path, "routes", name)
        if route.when is not None and linear_search(route.when) is None:
            yield ConfigProblem(
                (*at, "when"),
                "this is not a valid regular expression.",
                "Look-around and back references are not supported; see the syntax of RE2.",
            )
        described = name not in profiles or profiles[name].description
        if route.when is None and name != router.default and not described:
            yield ConfigProblem(
                at,
                f"nothing can choose the route {name!r}: it has no rule, and the profile has no description.",
                "Add `when`, or a `description` to the profile.",
            )


def _check_handoff(
    path: ConfigPath, handoff: HandoffConfig, profiles: Mapping[str, ProfileConfig]
) -> Iterator[ConfigProblem]:
    for name, others in (handoff.handoffs or {}).items():
        for at, each in (((name,), name), *(((name, number), each) for number, each in enumerate(others))):
            if each not in handoff.members:
                yield _unknown((*path, "handoffs", *at), each, "member", dict.fromkeys(handoff.members))
                return
    targets, reached = handoff.targets, [handoff.members[0]]
    for name in reached:
        reached += [each for each in targets[name] if each not in reached]
    for number, name in enumerate(handoff.members):
        at, kind = (*path, "members", number), profiles[name].composition
        if name not in reached:
            yield ConfigProblem(
                at,
                f"{name!r} never gets the conversation: no member that gets it may hand over to this one.",
                "Add it to the `handoffs` of another member, or leave it out.",
            )
        if kind:
            yield ConfigProblem(
                at,
                f"{name!r} is a `{kind}`, which cannot hand the conversation over.",
                "Let a member call it as one of its `agents`.",
            )
        if any(name in others for others in targets.values()) and not profiles[name].description:
            yield ConfigProblem(
                at,
                f"the profile {name!r} has no description, so no model knows when to hand over to it.",
                "Write its purpose into `description`.",
            )


def _check_cycles(profiles: Mapping[str, ProfileConfig]) -> Iterator[ConfigProblem]:
    cycle = _find_cycle({name: list(profile.members.values()) for name, profile in profiles.items()})
    if cycle:
        user, used = cycle[0], cycle[1]
        place = next(place for place, name in profiles[user].members.items() if name == used)
        yield ConfigProblem(
            ("profiles", user, *place),
            f"the profiles use each other in a cycle: {' → '.join(cycle)}.",
            "Remove one of these.",
        )


def _find_cycle(uses: Mapping[str, list[str]]) -> list[str]:
    """Return a cycle, each followed by one that it uses or waits for, the first also last; empty if none."""
    try:
        TopologicalSorter(uses).prepare()
    except CycleError as error:
        return cast("list[str]", error.args[1])[::-1]
    return []


def _depth(name: str, profiles: Mapping[str, ProfileConfig]) -> int:
    members = profiles[name].members.values()
    return max((1 + _depth(each, profiles) for each in members), default=0)


def _unknown(at: ConfigPath, name: str, kind: str, known: Mapping[str, object]) -> ConfigProblem:
    near = difflib.get_close_matches(name, known, n=1)
    meant = f"Did you mean {near[0]!r}? " if near else ""
    return ConfigProblem(at, f"there is no {kind} {name[:200]!r}.", f"{meant}There are: {', '.join(known)}.")
