import subprocess
import sys

HEAVY = ["numpy", "chromadb", "httpx2", "kuzu", "redis", "tantivy"]
MODULES = [
    "memory_graph",
    "memory_lexical",
    "chroma",
    "chroma_server",
    "elasticsearch",
    "falkordb",
    "kuzu",
    "tantivy",
    "probe",
]


def test_importing_the_indexes_loads_no_engine() -> None:
    script = f"""
import importlib, sys
for module in {MODULES}:
    importlib.import_module("loom_core.knowledge.indexes.engines." + module)
print([name for name in {HEAVY} if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
