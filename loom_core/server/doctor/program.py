"""The program itself: Python, and the packages it has against those it requires."""

from __future__ import annotations

import platform
import sys
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, distribution
from typing import TYPE_CHECKING

from loom_core.server.cli.health import Finding, Section, fine, problem, warning

if TYPE_CHECKING:
    from collections.abc import Collection
    from importlib.metadata import Distribution

    from packaging.requirements import Requirement

__all__ = ["Interpreter", "program_section"]


@dataclass(frozen=True, slots=True)
class Interpreter:
    """A Python.

    Attributes:
        version: such as `3.11.7`.
        implementation: `CPython` or another.
        system: such as `Linux`.
        machine: its processor, such as `x86_64`.
        bits: how wide its addresses are.
    """

    version: str
    implementation: str
    system: str
    machine: str
    bits: int

    @classmethod
    def running(cls) -> Interpreter:
        """The one that runs this."""
        return cls(
            version=platform.python_version(),
            implementation=platform.python_implementation(),
            system=platform.system(),
            machine=platform.machine(),
            bits=sys.maxsize.bit_length() + 1,
        )

    def __str__(self) -> str:
        return f"{self.implementation} {self.version} ({self.bits} bits) on {self.system} {self.machine}"


def program_section(name: str, *, interpreter: Interpreter | None = None) -> Section:
    """Look at a distribution that is installed, and at all that it requires. Blocks for about half a second.

    Args:
        name: its name, such as `loom-kb`.
        interpreter: the Python to judge; the running one if not given.
    """
    interpreter = interpreter or Interpreter.running()
    try:
        top = distribution(name)
    except PackageNotFoundError:
        finding = problem(
            "package-missing", f"{name} itself is not installed.", f"Install it: uv tool install {name}"
        )
        return Section(name="program", facts={"python": str(interpreter)}, findings=[finding])
    packages: dict[str, str] = {}
    findings = [*_python_findings(top, interpreter), *_package_findings(top, packages)]
    facts = {
        name: top.version,
        "python": str(interpreter),
        "executable": sys.executable,
        "packages": dict(sorted(packages.items())),
    }
    return Section(
        name="program",
        facts=facts,
        findings=findings or [fine("program", "Python and all packages are as they are required.")],
    )


def _python_findings(top: Distribution, interpreter: Interpreter) -> Iterator[Finding]:
    from packaging.specifiers import SpecifierSet

    name, wanted = top.metadata["Name"], ",".join(top.metadata.get_all("Requires-Python") or ())
    install = f"uv tool install --python 3.12 {name}"
    if not SpecifierSet(wanted).contains(interpreter.version, prereleases=True):
        message = f"Python {interpreter.version} is not {wanted}, which {name} requires."
        yield problem("wrong-python", message, f"Install it with another Python: {install}")
    if interpreter.bits < 64:
        message = f"This Python is a {interpreter.bits}-bit program, and stores need 64 bits."
        yield problem("wrong-python", message, f"Install it with a 64-bit Python: {install}")
    if interpreter.implementation != "CPython":
        message = f"This Python is {interpreter.implementation}; {name} is tested with CPython only."
        yield warning("wrong-python", message, f"Install it with CPython: {install}")


def _package_findings(top: Distribution, direct: dict[str, str]) -> Iterator[Finding]:
    """What is missing or of a wrong version; Loom's own requirements come before those of others.

    Args:
        top: whose requirements, and theirs in turn.
        direct: gets the versions of what Loom's own distributions require, by name.
    """
    program = top.metadata["Name"]
    remedy = f"Install {program} anew in a place of its own: uv tool install --force {program}"
    waiting: deque[tuple[Distribution, frozenset[str]]] = deque([(top, frozenset())])
    seen: set[tuple[str, frozenset[str]]] = set()
    told: set[str] = set()
    while waiting:
        owner, extras = waiting.popleft()
        ours = owner.metadata["Name"].startswith("loom-")
        for requirement in _required(owner, extras):
            name, wanted = requirement.name, frozenset(requirement.extras)
            by = f"which {owner.metadata['Name']} requires"
            try:
                found = distribution(name)
            except PackageNotFoundError:
                if name not in told:
                    yield problem("package-missing", f"{name} is not installed, {by}.", remedy)
                told.add(name)
                continue
            if ours:
                direct[name] = found.version
            if name not in told and not requirement.specifier.contains(found.version, prereleases=True):
                tell = problem if ours else warning  # others often require more than they need
                message = f"{name} is of version {found.version} and not {requirement.specifier}, {by}."
                yield tell("package-version", message, remedy)
                told.add(name)
            if (name, wanted) not in seen:
                seen.add((name, wanted))
                waiting.append((found, wanted))


def _required(owner: Distribution, extras: Collection[str]) -> Iterator[Requirement]:
    """What a distribution requires on this machine, with these extras."""
    from packaging.requirements import InvalidRequirement, Requirement

    for text in owner.requires or ():
        try:
            requirement = Requirement(text)
        except InvalidRequirement:  # of a package from before there were rules
            continue
        marker = requirement.marker
        if marker is None or any(marker.evaluate({"extra": extra}) for extra in ("", *extras)):
            yield requirement
