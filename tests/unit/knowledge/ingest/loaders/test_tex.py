from __future__ import annotations

import pytest

ARTICLE = r"""
% a comment
\documentclass[12pt]{article}
\usepackage{ctex}
\newcommand{\product}{Loom}
\newcommand{\ship}[1]{\emph{#1}}
\title{The \textbf{Harbour} --- 港口\thanks{Supported by the town.}}
\author{Ada Oneil \and Bo}
\date{2026-11-24}
\begin{document}
\maketitle
\tableofcontents
\section[Short]{Salt and ``grain''}\label{sec:salt}

The ship \ship{Ada} of \product{} carries 100\,\% salt~(5\%). % not this
It is $x^2_1$ high,\footnote{In \textit{spring}.} see~\ref{sec:salt} and \cite{oneil2020}.

\input{chapter}
\subsection{潮汐}
潮汐每小时
测量一次。
\begin{itemize}
  \item salt
  \item grain
    \begin{enumerate}
      \item 黑麦
      \item[b)] wheat
    \end{enumerate}
\end{itemize}
\begin{verbatim}
\begin{document} % verbatim
\end{verbatim}
\begin{equation}\label{eq:a}
  a = b \\ c
\end{equation}
\begin{figure}[ht]
  \centering
  \includegraphics[width=5cm]{map.png}
  \caption{The map of the harbour}
\end{figure}
\begin{quote}A quote.\end{quote}
\begin{tabular}{l|r}
  \hline
  Ship & 吨位 \\ \hline
  \textbf{Ada} & 420 \\
  Bo & 5\&7 \\
\end{tabular}
\end{document}
Not this.
"""


def test_an_article(load, outline) -> None:
    draft = load("a.tex", ARTICLE)
    assert outline(draft) == [
        ("heading", "The Harbour — 港口"),
        ("paragraph", "Ada Oneil, Bo\n2026-11-24"),
        ("heading", "Salt and “grain”"),
        (
            "paragraph",
            "The ship Ada of Loom carries 100 % salt (5%). "
            "It is $x^2_1$ high, (In spring.) see and [oneil2020].",
        ),
        ("heading", "潮汐"),
        ("paragraph", "潮汐每小时测量一次。"),
        ("list", "- salt"),
        ("list", "- grain\n  1. 黑麦\n  b) wheat"),
        ("code", r"\begin{document} % verbatim"),
        ("paragraph", r"$$a = b \\ c$$"),
        ("paragraph", "The map of the harbour"),
        ("paragraph", "A quote."),
        ("row", "Ship: Ada; 吨位: 420"),
        ("row", "Ship: Bo; 吨位: 5&7"),
    ]
    assert draft.blocks[-1].path == ("The Harbour — 港口", "Salt and “grain”", "潮汐")
    assert (draft.title, draft.title_source) == ("The Harbour — 港口", "metadata")
    assert draft.metadata == {"author": "Ada Oneil, Bo", "date": "2026-11-24"}
    assert draft.mime == "application/x-tex"


def test_a_chapter_without_a_preamble(load, outline) -> None:
    text = "\\chapter{排版中文}\\index{x}\n\n\\begin{verbatim}\n\\begin{document}\n\\end{verbatim}\n\n"
    text += "\\section{B}\n\nText"
    draft = load("a.tex", text)
    assert [(block.kind, block.level) for block in draft.blocks] == [
        ("heading", 1),
        ("code", 0),
        ("heading", 2),
        ("paragraph", 0),
    ]
    assert draft.title == "排版中文"


@pytest.mark.parametrize(
    ("markup", "text"),
    [
        (r"caf\'e \'{e} \"{o} \~n \c{c} \v s \^\i \ss{} \o", "café é ö ñ ç š î ß ø"),
        (r"\textbf{bold} {\em em} \texttt{a\_b} \underline{\emph{x}}", "bold em a_b x"),
        (r"\href{https://example.com}{the site}, \url{https://example.com}", "the site, https://example.com"),
        (r"\verb|\x{%}| and \lstinline!y!", r"\x{%} and y"),
        (r"\LaTeX{} \& \ldots \textbackslash{} \S 3", "LaTeX & … \\ § 3"),
        (r"$a$ \(b\) \[c\] $$d$$ costs \$5", r"$a$ \(b\) \[c\] $$d$$ costs $5"),
        ("One % comment\n  two%\nthree", "One twothree"),
        ("One % comment\n\ntwo", "One\n\ntwo"),
        (r"\vspace{2cm}\setlength{\parindent}{0pt}\definecolor{a}{b}{c}x", "cx"),
        (r"\textcolor{red}{red} \footnote{\footnote{deep}}", "red ((deep))"),
        (r"One\\[2mm]two \newline three", "One\ntwo\nthree"),
        (r"\def\x#1{no}\let\a\b\newtheorem{thm}{Theorem}yes", "yes"),
        (r"\iffalse no \fi yes", "yes"),
        (r"\begin{tikzpicture}\draw (0,0);\end{tikzpicture}yes", "yes"),
        (r"\begin{minipage}{5cm}yes\end{minipage}", "yes"),
        (r"\pinyinindex{gang}{港}\emph{yes}", "yes"),
    ],
)
def test_inline_markup(load, markup: str, text: str) -> None:
    assert load("a.tex", markup).text == text


def test_slides_and_other_environments(load, outline) -> None:
    text = r"""
\begin{frame}{Tides}
  \begin{description}\item[High] at noon\end{description}
\end{frame}
\begin{frame}\frametitle{More}
\begin{lstlisting}[language=Python]
read()
\end{lstlisting}
\begin{table}\begin{tabular}{ll}a & \begin{tabular}{l}b\end{tabular}\end{tabular}\end{table}
\end{frame}
\begin{thebibliography}{9}\bibitem{oneil} Ada Oneil.\end{thebibliography}
"""
    assert outline(load("a.tex", text)) == [
        ("heading", "Tides"),
        ("list", "High at noon"),
        ("heading", "More"),
        ("code", "read()"),
        ("row", "a | b"),
        ("list", "- Ada Oneil."),
    ]


@pytest.mark.hostile("files of any kind")
@pytest.mark.parametrize(
    "text",
    [
        r"\footnote{" * 50_000,
        r"\label{" * 50_000,
        "{" * 200_000,
        "$" * 200_001,
        r"\(" * 100_000,
        r"\begin{itemize}\item " * 5_000,
        r"\begin{tabular}{l}" * 5_000,
        r"\begin{verbatim}" * 20_000,
        r"\begin{equation}" * 20_000,
        r"\verb|" * 50_000,
        r"\newcommand{\a}{\a\a}\a" * 10_000,
        "\\title[" * 50_000,
        "`" * 200_000,
        r"\item[" * 50_000,
        r"\iffalse" * 50_000,
        r"\[ " * 100_000,
        r"\footnote{" * 20_000 + "x" + "}" * 20_000,
    ],
    ids=range(17),
)
def test_hostile_markup_takes_no_time(load, text: str) -> None:
    load("a.tex", f"start\n\n{text}\n\nend")
