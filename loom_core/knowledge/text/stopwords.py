"""Stop words: too common to tell one passage from another."""

from __future__ import annotations

__all__ = ["CHINESE_STOP_WORDS", "ENGLISH_STOP_WORDS"]

ENGLISH_STOP_WORDS = frozenset(
    """
    a about above after again against all also am an and any are aren't as at be because been before
    being below between both but by can can't cannot could couldn't did didn't do does doesn't doing
    don't down during each either few for from further had hadn't has hasn't have haven't having he
    he'd he'll he's her here hers herself him himself his how i i'd i'll i'm i've if in into is isn't
    it it's its itself just let's me more most my myself neither no nor not of off on once only or
    other our ours ourselves out over own same shan't she she'd she'll she's should shouldn't so some
    such than that that's the their theirs them themselves then there there's these they they'd
    they'll they're they've this those through to too under until up upon very was wasn't we we'd
    we'll we're we've were weren't what what's when where which while who who's whom whose why will
    with won't would wouldn't you you'd you'll you're you've your yours yourself yourselves
    """.split()
)

CHINESE_STOP_WORDS = frozenset(
    """
    的 了 在 是 我 有 和 就 不 人 都 一 上 也 很 到 说 要 去 你 会 着 看 好 这 那 他 她 它 们 与 及 或
    并 等 被 把 对 从 而 但 其 之 于 以 为 所 由 此 则 因 向 还 又 再 才 只 可 该 各 每 某 吗 呢 吧 啊
    一个 一些 一种 没有 自己 什么 怎么 怎样 如何 为什么 为何 哪个 哪些 哪里 哪年 哪一 多少 几个 是否
    我们 你们 他们 她们 它们 这个 那个 这些 那些 这样 那样 这种 那种 这里 那里 因为 所以 但是 而且
    如果 以及 或者 并且 可以 可能 已经 还是 就是 不是 不会 不能 由于 关于 对于 通过 进行 之后 之前
    之间 其中 其他 其它 以后 以前 以上 以下 时候 目前 现在 同时 此外 另外 然后 这是 也是 都是
    """.split()
)
