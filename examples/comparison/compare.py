"""Run every feature in Loom and in three other frameworks, with the same scripted model, and print a table.

    uv venv FOLDER
    uv pip install --python FOLDER/bin/python --require-hashes -r requirements/agent-frameworks.txt
    python examples/comparison/compare.py FOLDER/bin/python

The interpreter is one that has the others; without it, only Loom runs. The numbers are lines of code, of
functions that did what they should. The exit code is 1 if one did not.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import scripted_model
from features import FEATURES, MODULES, Example, read_examples


def main() -> int:
    if sys.argv[1:2] == ["run"]:
        asyncio.run(run(*sys.argv[2:]))
        return 0
    pythons = dict.fromkeys(MODULES, sys.argv[1]) if sys.argv[1:] else {}
    pythons["Loom"] = sys.executable
    names = [name for name in MODULES if name in pythons]
    examples = {name: read_examples(MODULES[name]) for name in names}
    print(f"| | {' | '.join(names)} |\n|{'---|' * (1 + len(names))}")
    failed = False
    with scripted_model.serve() as address:
        for feature, (title, _) in FEATURES.items():
            cells = [
                cell(pythons[name], name, feature, examples[name].get(feature), address) for name in names
            ]
            failed = failed or "failed" in cells
            print(f"| {title} | {' | '.join(cells)} |", flush=True)
    return int(failed)


def cell(python: str, name: str, feature: str, example: Example | None, address: str) -> str:
    """Run a feature, and return the cell of the table."""
    if example is None:
        return "–"
    outcome, problem = outcome_of(python, MODULES[name], feature, address)
    if outcome == FEATURES[feature].outcome:
        return str(example.lines)
    print(f"{name}, {feature}: {outcome!r} {problem}", file=sys.stderr)
    return "failed"


def outcome_of(python: str, module: str, feature: str, address: str) -> tuple[str, str]:
    """Run a feature in a process of its own, and return its outcome, and what it wrote to stderr.

    A run that is killed is run again, in the same folder.
    """
    with tempfile.TemporaryDirectory() as folder:
        command = [python, __file__, "run", module, feature, address, folder]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode < 0:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
    return (json.loads(done.stdout) if done.returncode == 0 else ""), done.stderr


async def run(module: str, feature: str, address: str, folder: str) -> None:
    """Run a feature here, and print its outcome as JSON."""
    framework = importlib.import_module(module)
    print(json.dumps(await getattr(framework, feature)(framework.connect(address), Path(folder))))


if __name__ == "__main__":
    sys.exit(main())
