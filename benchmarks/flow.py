"""Overhead of flows, compared with the work that they do.

    python benchmarks/flow.py match
    python benchmarks/flow.py redos
    python benchmarks/flow.py overhead [--rounds 10] [--messages 50]
    python benchmarks/flow.py knowledge [--rounds 10]

`match`: finding the trigger patterns that fit a message, of 10, 300 and 3,000 patterns, half Chinese and
half English, a third of them with a named group. The messages are all different; a fifth of them fit a
pattern. Markdown is printed: milliseconds a message (mean, median, 99th of a hundred, the worst), what
loading takes, the memory that the matcher takes, and for comparison a loop over the same patterns with
Python's `re`.

`redos`: the hostile patterns of tests/unit/flow/triggers/test_redos.py on the messages that are made for
each: how many are refused when they are loaded, and the slowest message of each of the others; the best of
five tries, so that other processes do not count.

`overhead`: one endpoint asked by a bare httpx2 client, by `EndpointCaller`, by router and executor with a
journal in a file, and by a whole conversation, in turns on one server of its own (`flow_api.py`), over kept
connections. POST has its journal on the disk before it is sent; GET may be sent again, and need not.

`knowledge`: how long messages take without a knowledge API, with one that answers at once, and with one that
takes 3 s, where rules decide, where a model that takes 0.8 s decides for a flow, and where it answers from
knowledge, which it waits for as long as `knowledge_seconds` (2 s) after the decision.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import re
import runpy
import statistics
import subprocess
import sys
import time
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, NamedTuple

import flow_ways
from bases import percentile

if TYPE_CHECKING:
    from collections.abc import Callable

_MESSAGES = 2000
_LOOPED = 200  # messages for Python's `re`, which takes long
_SIZES = (10, 300, 3000)
_TRIES = 5
_HOSTILE = Path(__file__).parents[1] / "tests" / "unit" / "flow" / "triggers" / "test_redos.py"

_DO_ZH = "申请 办理 查询 取消 修改 预约 提交 打印 下载 开通 关闭 续签 补办 转让 核对".split()
_DO_EN = (
    "request book check cancel change print submit renew close open extend transfer report order track"
).split()
_WHAT_ZH = (
    "年假 病假 报销 工资条 会议室 合同 发票 订单 体检 门禁卡 打印机 出差 停车位 社保 公积金 证明 名片 培训 "
    "加班 调岗"
).split()
_WHAT_EN = (
    "leave payslip invoice meeting contract parcel badge printer trip parking insurance certificate card "
    "training overtime refund subscription appointment desk laptop"
).split()
_CHAT_ZH = (
    "你好 请问一下 我想 麻烦 帮我 今天 明天下午 公司 同事 这个 那个 怎么样 谢谢 大概 已经 还没有 不知道 需要"
).split()
_CHAT_EN = (
    "hello could you please I need my the today tomorrow manager office thanks about still not yet when"
).split()


class Flow(NamedTuple):
    """The part of a flow that the matcher needs."""

    flow_id: str
    trigger_patterns: tuple[str, ...]
    priority: int = 0
    enabled: bool = True


def main() -> None:
    arguments = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parts = arguments.add_subparsers(dest="part", required=True)
    match = parts.add_parser("match", help="trigger patterns")
    match.add_argument("--patterns", type=int, help="only so many, in this process")
    parts.add_parser("redos", help="hostile patterns")
    overhead = parts.add_parser("overhead", help="next to a bare request")
    overhead.add_argument("--messages", type=int, default=50, help="of each round")
    knowledge = parts.add_parser("knowledge", help="next to a slow knowledge API")
    for part in (overhead, knowledge):
        part.add_argument("--rounds", type=int, default=10)
    args = arguments.parse_args()
    if args.part == "redos":
        hostile()
        return
    if args.part == "overhead":
        for method in ("GET", "POST"):
            asyncio.run(flow_ways.overhead(method, rounds=args.rounds, messages=args.messages))
        return
    if args.part == "knowledge":
        asyncio.run(flow_ways.decisions(rounds=args.rounds))
        return
    if args.patterns:
        print(measured(args.patterns))
        return
    print("| patterns | load | memory | mean | median | p99 | worst | Python's re, mean |")
    print("|---|---|---|---|---|---|---|---|", flush=True)
    for size in _SIZES:  # each in a process of its own, for its memory
        subprocess.run([sys.executable, str(Path(__file__)), "match", "--patterns", str(size)], check=True)


def measured(size: int) -> str:
    from loom_core.flow.triggers import TriggerMatcher

    random = Random(size)
    patterns = made_patterns(size)
    messages = made_messages(random, size)
    TriggerMatcher([Flow("warm-up", ("x",))]).match("什么")
    gc.collect()
    before, began = _resident(), time.perf_counter()
    matcher = TriggerMatcher([Flow(f"flow-{at}", (pattern,)) for at, pattern in enumerate(patterns)])
    load = time.perf_counter() - began
    times, fitting = _times(matcher.match, messages)
    memory = _resident() - before
    assert fitting >= _MESSAGES // 20, "the messages should fit something"
    compiled = [re.compile(pattern, re.IGNORECASE) for pattern in patterns]
    looped, _ = _times(
        lambda message: [each for each in compiled if each.search(message)], messages[:_LOOPED]
    )
    return (
        f"| {size:,} | {load:.2f} s | {memory / 2**20:.0f} MiB | {statistics.mean(times):.4f} ms | "
        f"{percentile(times, 50):.4f} ms | "
        f"{percentile(times, 99):.4f} ms | {max(times):.3f} ms | {statistics.mean(looped):.3f} ms |"
    )


def hostile() -> None:
    """Print what hostile patterns take."""
    from loom_core.errors import ConfigError
    from loom_core.flow.triggers import TriggerMatcher

    corpus = runpy.run_path(str(_HOSTILE))
    refused, worst = 0, list[float]()
    loading = 0.0
    for pattern, unit, tail in corpus["_CORPUS"]:
        began = time.perf_counter()
        try:
            matcher = TriggerMatcher([Flow("hostile", (pattern,))])
        except ConfigError:
            refused += 1
            continue
        finally:
            loading = max(loading, time.perf_counter() - began)
        messages: list[str] = corpus["_messages"](unit, tail)
        tries = [_times(matcher.match, messages)[0] for _ in range(_TRIES)]
        worst.append(max(map(min, zip(*tries, strict=True))))
    print("| patterns | refused when loaded | slowest to load | median | p95 | worst |")
    print("|---|---|---|---|---|---|")
    times = (statistics.median(worst), percentile(worst, 95), max(worst))
    told = " | ".join(f"{each:.2f} ms" for each in times)
    print(f"| {refused + len(worst)} | {refused} | {1000 * loading:.0f} ms | {told} |")


def made_patterns(size: int) -> list[str]:
    """So many patterns as people write them, all different."""
    made: list[str] = []
    for at in range(size // 2):
        number = at // (len(_DO_ZH) * len(_WHAT_ZH)) or ""
        verb, thing = at % len(_DO_ZH), at // len(_DO_ZH) % len(_WHAT_ZH)
        group = at % 3 == 0
        made.append(
            f"{_DO_ZH[verb]}.*{'(?P<days>[0-9一二两三四五]+)天.*' if group else ''}{_WHAT_ZH[thing]}{number}"
        )
        place = r".*\bfor (?P<days>\w+) days?" if group else ""
        made.append(rf"\b{_DO_EN[verb]}\b.*\b{_WHAT_EN[thing]} ?{number}\b{place}")
    return made


def made_messages(random: Random, size: int) -> list[str]:
    """Messages that people write; every tenth fits a pattern."""
    made: list[str] = []
    pairs = max(1, size // 2)
    for at in range(_MESSAGES):
        chinese = at % 2 == 0
        words = random.choices(_CHAT_ZH if chinese else _CHAT_EN, k=random.randint(4, 14))
        if at % 10 < 2:
            which = random.randrange(min(pairs, len(_DO_ZH) * len(_WHAT_ZH)))
            verb, thing = which % len(_DO_ZH), which // len(_DO_ZH) % len(_WHAT_ZH)
            if chinese:
                words += [_DO_ZH[verb], f"{random.randint(1, 5)}天的", _WHAT_ZH[thing]]
            else:
                words += [_DO_EN[verb], "a", _WHAT_EN[thing], "for", str(random.randint(1, 9)), "days"]
        elif random.random() < 0.5:  # a word of a pattern, by itself
            words.insert(2, random.choice(_WHAT_ZH if chinese else _WHAT_EN))
        words.append(str(at))
        made.append(("" if chinese else " ").join(words))
    return made


def _times(
    match: Callable[[str], list[object]] | Callable[[str], object], messages: list[str]
) -> tuple[list[float], int]:
    """Milliseconds for each message, and how many fit."""
    times: list[float] = []
    fitting = 0
    for message in messages:
        began = time.perf_counter()
        found = match(message)
        times.append(1000 * (time.perf_counter() - began))
        fitting += bool(found)
    return times, fitting


def _resident() -> int:
    """Bytes of this process that are in memory."""
    pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1])
    return pages * 4096


if __name__ == "__main__":
    main()
