"""Global questions: those about the documents as a whole, which no few passages answer.

"Which topics are covered?" wants an overview; "What are the main risks that these contracts name?" wants
passages from all over, and has a focus. Both are recognised by their words, in English and Chinese: a
question for an overview has words for the documents and for an overview and, apart from fillers, no other;
one with a focus speaks of several documents. A question about one thing is not taken for either.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

__all__ = ["GlobalQuestion", "parse_global_question"]

_LONGEST = 240  # characters of a global question


@dataclass(frozen=True, slots=True)
class GlobalQuestion:
    """A global question.

    Attributes:
        focus: the words that say what in the documents it is about; empty if it is about all of them.
    """

    focus: str = ""


# -- English ------------------------------------------------------------------------------------------------

# Several documents. The second list has other meanings in manuals, and needs "these", "all" or "our".
_PAPERS = (
    r"documents|docs|papers|articles|contracts|agreements|policies|reports|manuals|guidelines|handbooks|"
    r"minutes|meeting notes|transcripts|interviews|studies|publications|e-?mails|memos|proposals|reviews|"
    r"post-?mortems|surveys|presentations|specifications"
)
_OBJECTS = r"files|texts|guides|notes|pages|mails|messages|books|records|sources|materials|letters"
_WHOLES = (
    r"documentation|corpus|collection|library|archives?|knowledge ?bases?|kb|data ?sets?|wiki|repository|"
    r"repo|"
    r"folder|vault|document set|set of documents"
)
_ONE = r"document|doc|file|text|paper|article|contract|agreement|report|manual|handbook|book|material|page"
_MANY = re.compile(
    rf"\b(?:(?:the|these|those|my|our|your|all|every|each|most|various|several|both|"
    rf"of) (?:[\w'-]+ ){{0,2}}?"
    rf"(?:{_PAPERS})|(?:these|those|our|my|all)(?: of)?(?: the| these| our|"
    rf" my)? (?:[\w'-]+ )?(?:{_OBJECTS}))\b"
)
_DOCUMENTS = re.compile(
    rf"\b(?:{_PAPERS}|{_OBJECTS}|{_WHOLES}|{_ONE}|everything|here|this (?:thing|stuff|place)|all this)\b"
)
_OVERVIEW = re.compile(
    r"\b(?:overview|summary|outline|synopsis|gist|big picture|tl;?dr|summari[sz]\w*|sum up|topics?|themes?|"
    r"subjects?|subject matters?|areas?|fields|contents?|about|cover(?:s|ed|ing)?|contain(?:s|ed|ing)?|"
    r"deals? with|dealing with|discuss(?:es|ed)?|talks? about|holds?|include[sd]?|(?:what|"
    r"which) (?:kinds?|sorts?|types?)|"
    r"what(?:'?s| is| are| do you have)?(?: \w+)? in|describe|ask|stored|can you tell me)\b"
)
_BARE = re.compile(
    r"(?:(?:please|give me|show me|write|an?|the|short|brief|quick|general|list|what are|which are|main|"
    r"key|"
    r"major|all) )*(?:overview|summary|topics|themes|tl;?dr|big picture|summari[sz]e)(?: please)?|"
    r"what (?:topics|subjects|themes) (?:are (?:there|covered|discussed)|do you (?:cover|have|know))|"
    r"which (?:topics|subjects|themes|areas) are (?:there|covered|discussed|included|treated)|"
    r"what can (?:i|we) (?:ask|find|search)(?: you| for)?(?: about)?|what do you (?:know|have)(?: about)?|"
    r"what have i (?:stored|saved|added|put in)"
)
_FILLER = """
a about across actual actually add added all among an and any anyone anything are area areas as ask at
available basically be been before big biggest brief briefly bring broad broadly broken bullet bullets by
can central colleague collected common complete comprehensive concise contain content contents could couple
course cover covered covering currently deal dealing deals describe described describing detailed different
discuss discussed do does down dr each entire essentially everything exactly explain few field fields find
for from general generally get gist give given glance go good got guys had has have having hello help here
here's hey hi high-level hold holds how hundred i i'd i'm i've idea ideas important in include included
includes info information inside into is issues it it's its just key kind kindly kinds know knowledge
largest let let's level like list little long look looking main major make makes many material matter
matters may me mean mention mentioned more most much my myself name need never new no not now nutshell of on
one one-page one-paragraph or our out outline over overall overview page paragraph part parts picture pile
please pls points possible present principal provide put quick quickly read really recurring rough roughly
run say says search seen sentence sentences set short should show simple so some someone sort sorts speaking
start started starting stored stuff subject subjects sum summaries summarise summarised summarize summarized
summary synopsis take talk talking talks tell terms than thanks that that's the their them theme themes then
there these thing things this those through throughout tl tl;dr tldr to together top topic topics treat type
types under up upload uploaded us various walk want was way we we're we've well what what's whats which who
whole why will with within without words would write you you've your
""".split()
_LOCAL = re.compile(
    r"\b(?:how (?:do|can|to|should|would|does|is|did)|where|when|who|whose|why|delete|remove|move|copy|"
    r"rename|"
    r"open|print|download|upload|convert|back ?up|which (?:one )?of|is there|are there any|says? about|"
    r"number of|how (?:many|much|long|often|old))\b"
)
_CUE = re.compile(
    r"\b(?:what|which|list|compare|summari[sz]e|roundup|round up|collect|gather|go through|overview|"
    r"summary|"
    r"main|key|common|recurring|overall|how has|how have|across|throughout|every|all)\b"
)

# -- Chinese ------------------------------------------------------------------------------------------------

_ZH_PAPERS = (
    "文档|文件|资料|文章|合同|协议|制度|政策|法规|报告|会议纪要|会议记录|纪要|邮件|笔记|手册|指南|论文|"
    "文献|"
    "材料|说明书|周报|月报|年报|书籍|书|网页|页面|文本"
)
_ZH_WHOLES = (
    "知识库|资料库|文档库|文档集|语料库|语料|文集|数据集|资料集|全库|库|档案|wiki|维基|目录|文件夹|这里|"
    "里面|里头|"
    "全部内容|所有内容|全部|东西"
)
_ZH_MANY = re.compile(
    f"(?:这些|那些|这批|这堆|这几份|所有的?|全部的?|各个?|各份|每个|每份|我们的?|公司的?|上述|以上|历次|"
    f"历年|多份|几份|一系列)"
    f"(?:[\\u4e00-\\u9fff]{{0,6}}?)(?:{_ZH_PAPERS})|(?:{_ZH_PAPERS})(?:里|中|库)?(?:一共|总共|共|都|分别)"
)
_ZH_DOCUMENTS = re.compile(f"{_ZH_PAPERS}|{_ZH_WHOLES}")
_ZH_OVERVIEW = re.compile(
    "讲|说|谈|写|涉及|涵盖|包含|包括|介绍|覆盖|讨论|关于|有什么|有哪些|有些|有啥|都有|描述|记录|收录|"
    "内容|主题|话题|方面|概述|"
    "总结|概括|综述|归纳|梳理|概览|总览|简介|小结|摘要|大意|要点|重点|主旨|梗概|干嘛|围绕|分哪|分成|查到|"
    "问什么|领域"
)
_ZH_BARE = re.compile(
    "(?:请|帮我|给我|来|做|写|个|一个|一份|份|简单|简短|的)*"
    "(?:总览|概览|概述|总结|概括|综述|小结)(?:一下|下)?(?:吧|呗|吗)?|都?(?:有|涉及|涵盖|包含|讲)(?:了|"
    "些)*(?:哪些|什么)(?:主题|话题|内容|方面)"
)
_ZH_FILLER = (
    "这些 那些 这批 这堆 这几 所有 全部 整个 整套 整体 这个 这份 这套 本 我的 我们 我 你们 你 您好 您 "
    "你好 上述 以上 各个 各 每个 每 里面 里头 里 中 之中 内 当中 面 们 讲 说 谈 写 涉及 涵盖 包含 包括 "
    "介绍 覆盖 讨论 关于 有关 描述 记录 收录 研究 内容 主题 话题 议题 方面 领域 部分 章节 题目 要点 "
    "信息 问题 知识 东西 概述 总结 概括 综述 归纳 梳理 概览 总览 简介 小结 摘要 大意 重点 主旨 梗概 "
    "主要 核心 重要 关键 常见 共同 总体 普遍 大致 大概 大体 基本 到底 究竟 简单 简短 简要 全面 快速 "
    "几句话 一句话 一段话 什么 哪些 哪几 啥 哪 什么样 几个 几大块 大块 几 多少 请问 请 麻烦 帮我 帮忙 "
    "帮 给我 给 能不能 可不可以 可以 能否 能 告诉 想知道 想 知道 说说 讲讲 列出 列举 列 看看 看 来看 "
    "了解 查到 查 搜 问 先别细说 先 别 细说 干嘛 干什么 做什么 做 用来 用 一下 一些 一个 一份 一共 "
    "总共 一 分别 情况 谢谢 谢 刚接手 接手 刚 上传 存 放 就是 是 在 的 地 得 了 着 过 到 都 有 和 与 "
    "及 把 对 将 就 也 还 个 份 些 下 集 啊 呢 吧 吗 呀 嘛 哦 呗 上 来 进行 当前 目前 现在 可 会 要 以 "
    "为 从 目的 类 种 类型 哪类 如 三五句话 合起来 围绕 展开 整体性 性 哪方面 整体上 总的来说 捋一遍 "
    "捋 遍 分成 分 堆 解释 能回答 回答"
).split()
_ZH_FILLERS = re.compile("|".join(sorted(_ZH_FILLER, key=len, reverse=True)))
_ZH_LOCAL = re.compile(
    "怎么|如何|怎样|在哪|哪里|什么时候|何时|谁|为什么|删除|移动|复制|备份|打开|导出|多久|几点|哪一份|哪份"
)
_ZH_CUE = re.compile(
    "哪些|什么|总结|归纳|概括|梳理|汇总|对比|比较|分别|一共|都|主要|常见|共同|各|一步步|变化|列出|不同"
)
_ZH_FORM = re.compile(
    f"{_ZH_MANY.pattern}|(?:{_ZH_PAPERS})|里面?|中的?|之中|当中|(?:主要|常见|共同|重要|关键|普遍)的?|"
    f"(?:提到|涉及|讨论|规定|说明|列出|包含|关于)过?的?|"
    "总结|归纳|概括|梳理|汇总|做个|对比|比较|(?:有|是)?(?:什么|哪些)|分别|一共|都|^请|一下|帮我|把|从|看"
)
_EDGES = " \t\n?？!！.。,，:：;；\"'“”‘’…~"
_CLAUSE = re.compile(r"[.?!;。？！；\n]+|[,，] ?")


def parse_global_question(question: str) -> GlobalQuestion | None:
    """Return what a global question asks for; None if the question is not one."""
    if len(question) > _LONGEST:
        return None
    plain = " ".join(question.casefold().replace("’", "'").split()).strip(_EDGES)
    is_chinese = re.search(r"[\u4e00-\u9fff]", plain) is not None
    if not (_ZH_OVERVIEW if is_chinese else _OVERVIEW).search(plain) and not (
        _ZH_MANY if is_chinese else _MANY
    ).search(plain):
        return None  # most questions end here
    wants_all = _is_chinese_overview if is_chinese else _is_overview
    if any(wants_all(clause.strip(_EDGES)) for clause in (plain, *_CLAUSE.split(plain)) if clause):
        return GlobalQuestion()
    many, local, cue = (_ZH_MANY, _ZH_LOCAL, _ZH_CUE) if is_chinese else (_MANY, _LOCAL, _CUE)
    if not many.search(plain) or local.search(plain) or not cue.search(plain):
        return None
    focus = _focus(plain, is_chinese=is_chinese)
    return GlobalQuestion(focus) if focus else None


def _is_overview(text: str) -> bool:
    """Whether an English clause asks for an overview, and for nothing else."""
    if _BARE.fullmatch(text):
        return True
    left = _DOCUMENTS.sub(" ", text)
    if left == text or not _OVERVIEW.search(text):
        return False
    return all(word in _fillers() for word in re.findall(r"[\w';-]+", left))


def _is_chinese_overview(text: str) -> bool:
    """Whether a Chinese clause asks for an overview, and for nothing else."""
    bare = text.replace(" ", "")
    if _ZH_BARE.fullmatch(bare):
        return True
    left = _ZH_DOCUMENTS.sub(" ", bare)
    if left == bare or not _ZH_OVERVIEW.search(left) or _ZH_LOCAL.search(bare):
        return False
    return not re.sub(r"[\s,，、:：]", "", _ZH_FILLERS.sub("", left))


def _focus(text: str, *, is_chinese: bool) -> str:
    from loom_core.knowledge.text.analysis import content_words  # lazily: servers import this module

    if is_chinese:
        left = _ZH_FORM.sub(" ", text)
    else:
        words = re.findall(r"[\w'-]+", _DOCUMENTS.sub(" ", text))
        left = " ".join(word for word in words if word not in _fillers())
    return content_words(left).strip() if left.strip() else ""


@cache
def _fillers() -> frozenset[str]:
    return frozenset(_FILLER)
