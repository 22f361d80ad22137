"""Audit of dependencies: pins, licences, reasons and known vulnerabilities.

    python -m tools.dependency_audit               both; exit code 3 where the database cannot be reached
    python -m tools.dependency_audit --offline     only what always has to hold

Always: every pin is exact and has hashes, nothing comes from elsewhere than a package index, licences are
among those that Loom can be given away with, each declared dependency has its reason in docs/dependencies.md.
The database is OSV's; it is told names and versions of public packages and nothing else. Vulnerabilities that
do not concern Loom stand in requirements/accepted-vulnerabilities.txt, each with a reason.

Exit codes: 0 all is well; 1 something has to be mended; 3 all is well as far as can be seen, but no pin
was looked up.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tomllib
import urllib.error
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

__all__ = [
    "licence",
    "licence_problems",
    "main",
    "parse_accepted",
    "pins",
    "reason_problems",
    "requirement_problems",
    "vulnerabilities",
]

_ROOT = Path(__file__).parents[1]
_SERVICE = "https://api.osv.dev/v1/querybatch"
_AT_ONCE = 500  # the service takes 1,000
_SECONDS = 30
_MOST_ANSWER = 16 << 20
_UNKNOWN = 3

_PIN = re.compile(
    r"^([A-Za-z0-9][\w.-]*)(?:\[[\w.,-]+\])?==([^\s;\\]+)(?: ;[^\\]*)?((?: \\\n    --hash=\S+)*)$"
)
_HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}")

ALLOWED = frozenset(
    "0BSD Apache-2.0 BSD BSD-2-Clause BSD-3-Clause CC0-1.0 CNRI-Python ISC MIT MIT-0 MIT-CMU MPL-2.0 PSF-2.0 "
    "Unlicense Zlib".split()
)
"""Licences of what Loom may require: none asks that programs which use it be given away in the same way."""

_CALLED = {
    "3-Clause BSD License": "BSD-3-Clause",
    "Apache License, Version 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "BSD License": "BSD",
    "ISC License (ISCL)": "ISC",
    "MIT License": "MIT",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
}
_READ = {  # licences that stand in files only, read by a person
    "promql-parser": "MIT",
    "pypdfium2": "BSD-3-Clause AND Apache-2.0",
    "wordllama": "MIT",
}
_AS_IT_IS = {  # packages with the one licence that is accepted for them, as they are used unchanged
    # A library that is imported and can be exchanged, of an extra that no server requires: as the LGPL asks.
    "psycopg": "LGPL-3.0-only",
    "psycopg-binary": "LGPL-3.0-only",
}


def pins(text: str) -> dict[str, str]:
    """Return the versions that a file of pins names, by package."""
    return {canonicalize_name(found[1]): found[2] for each in _entries(text) if (found := _PIN.match(each))}


def requirement_problems(text: str, *, name: str) -> list[str]:
    """List the problems of a file of pins: what has no exact version or hashes, or is from elsewhere."""
    problems: list[str] = []
    for entry in _entries(text):
        found = _PIN.match(entry)
        if found is None:
            problems.append(f"{name}: {entry.splitlines()[0]!r} is no exact version of a package.")
        elif not _HASH.search(found[3]):
            problems.append(f"{name}: {found[1]} has no hash.")
    return problems


def _entries(text: str) -> Iterator[str]:
    """Yield the entries of a file of pins, each with its hashes; no comments."""
    lines = [line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("#")]
    entry: list[str] = []
    for line in lines:
        entry.append(line)
        if not line.endswith("\\"):
            yield "\n".join(entry)
            entry = []
    if entry:
        yield "\n".join(entry)


def licence(about: Mapping[str, Any], classifiers: Sequence[str]) -> str:
    """Return the licence in a distribution's metadata, as an SPDX expression if possible."""
    if expression := about.get("License-Expression"):
        return str(expression)
    said = [
        each.rpartition(" :: ")[2]
        for each in classifiers
        if each.startswith("License :: ") and each != "License :: DFSG approved"  # a judgement, no licence
    ]
    return " AND ".join(_CALLED.get(each, each) for each in said or [str(about.get("License") or "unknown")])


def licence_problems(packages: Iterable[str]) -> list[str]:
    """Return the packages whose licence is not allowed; skip those that are not installed."""
    problems: list[str] = []
    for package in sorted(packages):
        try:
            about = metadata.metadata(package)
        except metadata.PackageNotFoundError:  # of another system
            continue
        said = _READ.get(package) or licence(
            {key: about[key] for key in ("License-Expression", "License") if key in about},
            about.get_all("Classifier") or [],
        )
        if not _is_allowed(said) and said != _AS_IT_IS.get(package):
            problems.append(f"{package}: its licence is {said[:60]!r}, which is not among those allowed.")
    return problems


def _is_allowed(expression: str) -> bool:
    """Return whether all of an expression is allowed, or, where there is a choice, one of its choices."""
    plain = expression.replace("(", " ").replace(")", " ")
    if " OR " in plain and " AND " not in plain:
        return any(each.strip() in ALLOWED for each in plain.split(" OR "))
    return all(each.strip() in ALLOWED for each in re.split(r" AND | OR ", plain))


def reason_problems(root: Path) -> list[str]:
    """Return the declared dependencies that docs/dependencies.md does not mention."""
    reasons = (root / "docs" / "dependencies.md").read_text(encoding="utf-8")
    words = {canonicalize_name(each) for each in re.findall(r"[A-Za-z0-9][\w.-]*\w", reasons)}
    problems: list[str] = []
    for file in [root / "pyproject.toml", *sorted(root.glob("servers/*/pyproject.toml"))]:
        data = tomllib.loads(file.read_text(encoding="utf-8"))
        lists = [
            data["project"].get("dependencies", []),
            *data["project"].get("optional-dependencies", {}).values(),
            *data.get("dependency-groups", {}).values(),
        ]
        names = {canonicalize_name(Requirement(each).name) for written in lists for each in written}
        problems += [
            f"{file.relative_to(root)}: {name} has no reason in docs/dependencies.md."
            for name in sorted(names - words)
            if not name.startswith("loom-")
        ]
    return problems


def parse_accepted(text: str) -> dict[str, str]:
    """Parse the accepted ids with their reasons: `ID: why`, a line each."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip() and not line.startswith("#"):
            name, _, reason = line.partition(":")
            if not reason.strip():
                raise ValueError(f"{name.strip()} is accepted without a reason.")
            found[name.strip()] = reason.strip()
    return found


def vulnerabilities(versions: Iterable[tuple[str, str]], *, service: str = _SERVICE) -> dict[str, list[str]]:
    """Query the ids of known vulnerabilities of these versions, by `package version`.

    Raises:
        OSError: the service cannot be reached, or its answer is none.
    """
    asked = sorted(set(versions))
    found: dict[str, list[str]] = {}
    for start in range(0, len(asked), _AT_ONCE):
        part = asked[start : start + _AT_ONCE]
        queries = [
            {"package": {"name": name, "ecosystem": "PyPI"}, "version": version} for name, version in part
        ]
        results = _post(service, {"queries": queries})
        if len(results) != len(part):
            raise OSError(f"{len(results)} answers came for {len(part)} packages.")
        for (name, version), result in zip(part, results, strict=True):
            if ids := [str(each["id"]) for each in result.get("vulns") or []]:
                found[f"{name} {version}"] = ids
    return found


def _post(service: str, body: object) -> list[dict[str, Any]]:
    request = urllib.request.Request(
        service, data=json.dumps(body).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
        try:
            return list(json.loads(answer.read(_MOST_ANSWER))["results"])
        except (ValueError, KeyError, TypeError) as error:
            raise OSError("The answer is not that of a database of vulnerabilities.") from error


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m tools.dependency_audit", description="Audit dependencies."
    )
    parser.add_argument("--offline", action="store_true", help="do not ask the database of vulnerabilities")
    parser.add_argument(
        "--service", default=_SERVICE, metavar="URL", help="another one that answers like OSV's"
    )
    asked = parser.parse_args(arguments)
    files = sorted((_ROOT / "requirements").glob("*.txt"))
    texts = {
        file.name: file.read_text(encoding="utf-8")
        for file in files
        if file.name != "accepted-vulnerabilities.txt"
    }
    problems = [problem for name, text in texts.items() for problem in requirement_problems(text, name=name)]
    problems += licence_problems(pins(texts["dev.txt"])) + reason_problems(_ROOT)
    versions = {each for text in texts.values() for each in pins(text).items()}
    print(
        f"{len(versions)} versions are pinned in {len(texts)} files; {len(problems)} problems without asking."
    )
    status = 0
    if not asked.offline:
        try:
            known = vulnerabilities(versions, service=asked.service)
        except (OSError, urllib.error.URLError) as error:
            print(
                f"NOT LOOKED UP: no vulnerability was searched for, as {asked.service} cannot be reached "
                f"({error}).\nThis is no proof that there is none; run it again where there is a network.",
                file=sys.stderr,
            )
            status = _UNKNOWN
        else:
            problems += _vulnerability_problems(known)
            print(f"{len(versions)} versions were looked up; of {len(known)} something is known.")
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else status


def _vulnerability_problems(known: Mapping[str, Sequence[str]]) -> list[str]:
    file = _ROOT / "requirements" / "accepted-vulnerabilities.txt"
    reasons = parse_accepted(file.read_text(encoding="utf-8"))
    return [
        f"{package}: {each} is known. Upgrade, or say in {file.name} why it may stay."
        for package, ids in known.items()
        for each in ids
        if each not in reasons
    ]


if __name__ == "__main__":
    sys.exit(main())
