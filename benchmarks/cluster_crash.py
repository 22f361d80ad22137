"""Whole nodes and their processes are killed at random moments, while all kinds of work share one PostgreSQL.

    python benchmarks/cluster_crash.py [--kills 200] [--nodes 3] [--at-once 3] [--seed 0] [--keep FOLDER]

Each node has three processes: one that changes a knowledge base and asks it questions (as in `crash.py`), one
that drives runs of agents (`agent_crash.py`), and one that drives runs of flows (`flow_crash.py`). Two more
are the people who begin, decide, pause and abort those runs. The processes get SIGKILL at random moments, one
time in eight all three of a node at once, and are started again. Effects are counted outside of them.

Measured is how long it takes until another process works for the knowledge base, or has all runs at work of a
driver that was killed. In the end all runs come to their end, and everything is compared as in these three:
with what was acknowledged, with what was counted, and the indexes of each node with the store.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import random
import shutil
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1]))  # for the servers of the tests

import agent_crash
import flow_crash
from crash import Run
from killing import Actors, CountedEffects, JournalRows, RunFindings, journal_place

from loom_core.runs.journal.store import open_database
from tests.fixtures.store_servers.postgres import PASSWORD, run_postgres

_HERE = Path(__file__).parent
_WHOLE_NODE = 1 / 8
_TAKEOVER_SECONDS = 90.0
_END_SECONDS = 600.0
_LOOK_SECONDS = 0.1


class Cluster:
    """The nodes, and what was seen of them."""

    def __init__(self, base: Path, url: str, *, nodes: int, seed: int, at_once: int) -> None:
        self._at_once = at_once
        self._dice = random.Random(seed)
        self.knowledge = Run(base / "knowledge", processes=nodes, seed=seed, database=url, may_refuse=True)
        folders = {"agents": base / "agents", "flows": base / "flows"}
        for folder in folders.values():
            folder.mkdir()
        self.paths = {kind: folder / "runs.db" for kind, folder in folders.items()}
        for path in self.paths.values():  # no process may be the first to look at a schema
            open_database(journal_place(path))[0].close()
        agents, flows = agent_crash.Effects(folders["agents"]), flow_crash.Effects()
        self.effects: dict[str, CountedEffects] = {"agents": agents, "flows": flows}
        self.findings: dict[str, RunFindings] = {
            "agents": agent_crash.Findings(agents.done),
            "flows": flow_crash.Findings(flows.done),
        }
        self.actors = {
            kind: Actors(
                _HERE / f"{kind[:-1]}_crash_actor.py",
                path,
                drivers=nodes,
                shared=self.effects[kind].shared,
                seed=seed,
            )
            for kind, path in self.paths.items()
        }
        self.journals = {kind: JournalRows(path) for kind, path in self.paths.items()}
        self.killed = Counter[str]()
        self.takeovers: defaultdict[str, list[float]] = defaultdict(list)
        self.refusals: list[str] = []
        self.wrong: list[str] = []
        self._watchers: list[threading.Thread] = []

    def start_missing(self) -> None:
        """Start the processes that do not run, and wait until those with runs have begun."""
        self.knowledge.spawn_missing()
        with ThreadPoolExecutor(len(self.actors)) as pool:
            for started in [pool.submit(group.start_missing) for group in self.actors.values()]:
                started.result()

    def kill_some(self, most: int) -> int:
        """Kill up to so many processes at random moments; return how many."""
        killed = 0
        while killed < min(most, self._at_once):
            time.sleep(self._dice.expovariate(1.5))
            nodes = [name.removeprefix("actor") for name in self.knowledge.lives]
            if not nodes:
                break
            if most - killed >= 3 and self._dice.random() < _WHOLE_NODE:
                node = self._dice.choice(nodes)
                victims = [("knowledge", f"actor{node}"), *((kind, f"driver {node}") for kind in self.actors)]
                self.killed["whole nodes"] += 1
            else:
                everyone = [(kind, name) for kind, actors in self.actors.items() for name in actors.living]
                begun = [name for name, life in self.knowledge.lives.items() if life.began.is_set()]
                everyone += [("knowledge", name) for name in begun]
                weights = [0.2 if name == "person" else 1.0 for _, name in everyone]
                victims = self._dice.choices(everyone, weights)
            killed += sum(self._kill(kind, name) for kind, name in victims)
        for journal in self.journals.values():
            journal.look()
        return killed

    def end(self) -> None:
        """Let all runs come to their end, end all processes, and compare."""
        for path in self.paths.values():
            path.with_name(f"{path.name}.stop").touch()
        self.start_missing()
        until = time.monotonic() + _END_SECONDS
        while any(j.open_runs(failed=kind == "flows") for kind, j in self.journals.items()):
            if time.monotonic() > until:
                break
            time.sleep(1)
        for watcher in self._watchers:
            watcher.join()
        self._end_actors()
        self._note_refusals(*self.knowledge.lives)
        self.knowledge.verify()
        self.wrong += self.knowledge.failures
        for kind, findings in self.findings.items():
            asyncio.run(findings.compare(self.paths[kind]))
            self.wrong += [f"{kind}: {wrong}" for wrong in (*self.journals[kind].lost, *findings.wrong)]

    def close(self) -> None:
        """Kill what still runs."""
        self._end_actors()
        self.knowledge.end()

    def _end_actors(self) -> None:
        for actors in self.actors.values():
            actors.end()

    def _kill(self, kind: str, name: str) -> bool:
        if kind == "knowledge":
            if name not in self.knowledge.lives:
                return False
            self._note_refusals(name)
            life = self.knowledge.lives.pop(name)
            pid, owner = life.process.pid, self.knowledge.owner()
            life.kill()
            if pid == owner:
                self.killed["knowledge, at work"] += 1
                self._watch(kind, lambda: self.knowledge.owner() not in {0, pid})
        else:
            actors, journal = self.actors[kind], self.journals[kind]
            if name not in actors.living:
                return False
            pid = actors.living[name]
            held = journal.held_by(pid) if name != "person" else set[int]()
            actors.kill(name)
            if held:
                self._watch(kind, lambda: not held & journal.held_by(pid))
        self.killed[f"{kind}, {name.rstrip('0123456789 ')}"] += 1
        return True

    def _watch(self, kind: str, is_over: Callable[[], bool]) -> None:
        """Measure in a thread how long it takes from now, and whether another process lived all the time."""
        peers = self._pids(kind)

        def watch() -> None:
            began = time.monotonic()
            while not is_over():
                if time.monotonic() - began > _TAKEOVER_SECONDS:
                    self.wrong.append(f"{kind}: not taken over within {_TAKEOVER_SECONDS:g} s")
                    return
                time.sleep(_LOOK_SECONDS)
            alone = "" if peers & self._pids(kind) else ", when the others were started again,"
            self.takeovers[f"{kind}{alone}"].append(time.monotonic() - began)

        self._watchers.append(threading.Thread(target=watch, daemon=True))
        self._watchers[-1].start()

    def _pids(self, kind: str) -> set[int]:
        """The processes that can take over."""
        if kind == "knowledge":
            lives = list(self.knowledge.lives.values())
            return {life.process.pid for life in lives if life.began.is_set()}
        return {pid for name, pid in self.actors[kind].living.items() if name != "person"}

    def _note_refusals(self, *names: str) -> None:
        for name in names:
            self.refusals += self.knowledge.lives[name].refusals


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    arguments.add_argument("--kills", type=int, default=200)
    arguments.add_argument("--nodes", type=int, default=3)
    arguments.add_argument("--at-once", type=int, default=3, help="kills until they are started again")
    arguments.add_argument("--seed", type=int, default=0)
    arguments.add_argument("--seconds", type=float, default=3600.0, help="after which no more are killed")
    arguments.add_argument("--keep", type=Path, metavar="FOLDER", help="an empty folder that is kept")
    args = arguments.parse_args()
    base: Path = (args.keep or Path(tempfile.mkdtemp(prefix="loom-cluster-"))).resolve()
    base.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    with run_postgres(fsync="on") as server:
        os.environ |= {"LOOM_DATABASE": server.url(), "LOOM_DATABASE_SECRET": PASSWORD}
        cluster = Cluster(base, server.url(), nodes=args.nodes, seed=args.seed, at_once=args.at_once)
        kills = 0
        try:
            while kills < args.kills and time.monotonic() - began < args.seconds:
                cluster.start_missing()
                kills += cluster.kill_some(args.kills - kills)
                print(f"{time.monotonic() - began:.0f} s: {kills} kills", file=sys.stderr, flush=True)
            took = time.monotonic() - began
            cluster.end()
        finally:
            cluster.close()
    _print(cluster, kills, took, time.monotonic() - began)
    if not args.keep and not cluster.wrong:
        shutil.rmtree(base)
    elif cluster.wrong:
        print(f"everything is in {base}")
    sys.exit(bool(cluster.wrong))


def _print(cluster: Cluster, kills: int, took: float, all_seconds: float) -> None:
    print(f"{kills} kills in {took:.0f} s, all compared after {all_seconds:.0f} s: {dict(cluster.killed)}")
    for kind, seconds in sorted(cluster.takeovers.items()):
        times = f"median {statistics.median(seconds):.1f} s, longest {max(seconds):.1f} s"
        print(f"{kind} taken over {len(seconds)} times: {times}")
    knowledge = cluster.knowledge
    print(
        f"knowledge: {knowledge.operations} operations acknowledged on {knowledge.documents} documents, ",
        end="",
    )
    print(f"{len(cluster.refusals)} refused {Counter(cluster.refusals).most_common(3)}")
    for kind, findings in cluster.findings.items():
        at_work = dict(cluster.journals[kind].under_way)
        print(f"{kind}: {cluster.effects[kind].total()} effects; at the kills {at_work}", end="; ")
        print(dict(findings.counts))
    print("\n".join(cluster.wrong) or "nothing lost, nothing done twice, indexes equal, every run at its end")


if __name__ == "__main__":
    main()
