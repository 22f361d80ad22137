from __future__ import annotations

import pytest

from loom_core.errors import DocumentError

PAGE = r"""'\" t
.\" A comment
.de XX
swallowed
..
.ie n \{\
\h'-04'\(bu\h'+03'\c
.\}
.el \{\
.sp -1
.\}
.TH LS 1 "2026\-11\-24" GNU "User Commands"
.SH NAME
ls \- list directory contents
.SH SYNOPSIS
.B ls
[\fI\,OPTION\/\fR]... \
[\fIFILE\fR]...
.SH "DESCRIPTION"
.\" another
List \s-1INFORMATION\s0 about the FILEs \(em see
.BR sort (1),
.IR "the manual" .
.PP
Second paragraph,
.br
with a break.
.TP
\fB\-a\fR, \fB\-\-all\fR
.TQ
.B \-A
do not ignore entries starting with .\&
.IP \(bu 2
an \*(lqitem\*(rq
.SS Examples
.EX
$ ls \-l
  total \e0
.EE
.SH
AUTHOR
\[u738B]\('e
"""


def test_a_man_page_reads_as_a_terminal_shows_it(load, outline) -> None:
    draft = load("ls.1", PAGE)
    assert outline(draft) == [
        ("paragraph", "•"),
        ("heading", "NAME"),
        ("paragraph", "ls - list directory contents"),
        ("heading", "SYNOPSIS"),
        ("paragraph", "ls [OPTION]... [FILE]..."),
        ("heading", "DESCRIPTION"),
        ("paragraph", "List INFORMATION about the FILEs — see sort(1), the manual."),
        ("paragraph", "Second paragraph,\nwith a break."),
        ("list", "-a, --all, -A\n  do not ignore entries starting with ."),
        ("list", "•\n  an “item”"),
        ("heading", "Examples"),
        ("code", "$ ls -l\n  total \\0"),
        ("heading", "AUTHOR"),
        ("paragraph", "王é"),
    ]
    assert (draft.title, draft.title_source) == ("LS(1) - list directory contents", "metadata")
    assert draft.blocks[-3].path == ("DESCRIPTION", "Examples")


def test_a_chinese_page_joins_lines_without_a_space(load, outline) -> None:
    page = ".TH LS 1\n.SH 名称\nls \\- 列出目录\n.SH 描述\n列出文件的\n信息。\n"
    assert outline(load("ls.1", page))[-1] == ("paragraph", "列出文件的信息。")


def test_a_page_in_mdoc_reads_as_a_terminal_shows_it(load, outline) -> None:
    page = r""".Dd November 24, 2026
.Dt SCP 1
.Os
.Sh NAME
.Nm scp
.Nd secure file copy
.Sh SYNOPSIS
.Nm scp
.Op Fl 346
.Op Fl F Ar ssh_config
.Ar source ... target
.Sh DESCRIPTION
.Nm
copies files
.Pq see Xr ssh 1 ,
as
.Dq safe
as
.Xr rcp 1 .
.Bl -tag -width Ds
.It Fl c Ar cipher Ns = Ns Cm none
Selects the
.Em cipher .
.El
.Fn open "const char *path" "int flags" .
"""
    assert outline(load("scp.1", page)) == [
        ("heading", "NAME"),
        ("paragraph", "scp - secure file copy"),
        ("heading", "SYNOPSIS"),
        ("paragraph", "scp [-346] [-F ssh_config] source ... target"),
        ("heading", "DESCRIPTION"),
        ("paragraph", "scp copies files (see ssh(1),) as “safe” as rcp(1)."),
        ("list", "-c cipher=none\n  Selects the cipher."),
        ("paragraph", "open(const char *path, int flags)."),
    ]
    assert load("scp.1", page).title == "SCP(1) - secure file copy"


def test_a_table_of_a_page_reads_as_rows(load, outline) -> None:
    page = (
        ".TH A 7\n.SH TABLE\n.TS\ntab(:);\nl l.\n_\n"
        "SIGHUP:\\fB1\\fR\nSIGINT:T{\nkeyboard\n.I break\nT}\n.TE\nEnd.\n"
    )
    assert outline(load("a.7", page))[1:] == [
        ("row", "SIGHUP | 1"),
        ("row", "SIGINT | keyboard break"),
        ("paragraph", "End."),
    ]


def test_a_page_that_names_another_is_refused_and_names_it(load) -> None:
    with pytest.raises(DocumentError, match=r"only refers to the man page man1/ls\.1\. Add that one"):
        load("dir.1", ".so man1/ls.1\n")


def test_a_rendered_page_is_plain_text(load) -> None:
    assert load("ls.man", "LS(1)\n\nNAME\n       ls - list").mime == "text/troff"
    assert load("ls.1", "LS(1)\n\nNAME\n       ls - list").mime == "text/plain"


@pytest.mark.hostile("files of any kind")
@pytest.mark.parametrize(
    "body",
    [
        ".ds a \\*b\\*b\\*b\\*b\n.ds b \\*c\\*c\\*c\\*c\n.ds c \\*a\\*a\\*a\\*a\n"
        + "\\*a\\*a\\*a\\*a\n" * 2_000,
        "a\n" * 9_000 + ".ds a " + "x " * 5_000 + "\n" + "\\*a" * 50_000,
        ".if n " * 20_000 + "x",
        ".if n \\{\\\n" * 20_000 + "x",
        ".if t \\{\\\n" * 20_000 + "x",
        "\\[" * 50_000,
        "\\h'" * 30_001 + '\\w"' * 30_001,
        "\\\n" * 50_000,
        ".Op " + "Op " * 30_000,
        '.B "' + '""' * 50_000,
        ".TS\nl.\n" + "T{\n" * 30_000,
        ".de x\n" * 30_000,
    ],
    ids=range(12),
)
def test_a_page_made_to_take_all_time_or_memory_takes_neither(load, body: str) -> None:
    assert len(load("a.1", f".TH A 1\n.SH NAME\n{body}\n.SH END\nthe end\n").text) < 2_000_000
