from __future__ import annotations

import base64
from email.message import EmailMessage

import pytest

from loom_core.errors import DocumentError
from loom_core.knowledge.ingest.loaders import LoadLimits

HEAD = "From: Ada <ada@example.com>\nDate: Mon, 23 Nov 2026 10:00:00 +0100\n"
GREETING = "您好，附件是港口的潮汐报告，请查收。"


def message(subject: str = "Tide report", text: str = "The tide is high.", **headers: str) -> EmailMessage:
    made = EmailMessage()
    made["From"] = "Ada Oneil <ada@example.com>"
    made["To"] = "bo@example.com, cy@example.com"
    made["Date"] = "Mon, 23 Nov 2026 10:00:00 +0100"
    made["Subject"] = subject
    made["Received"] = "from mx.example.com by mail.example.com"
    for name, value in headers.items():
        made[name] = value
    made.set_content(text)
    return made


def encoded(text: str, charset: str) -> str:
    return base64.b64encode(text.encode(charset)).decode()


def test_a_message_has_a_head_a_text_and_the_names_of_its_attachments(load, outline) -> None:
    made = message(text="Hello Bo,\n\nthe tide is high.\n\n-- \nAda\nHarbour office\n")
    made.add_attachment(b"%PDF-1.7", maintype="application", subtype="pdf", filename="潮汐 report.pdf")
    made.add_attachment("a,b\n1,2\n", subtype="csv", filename="tides.csv")
    draft = load("a.eml", made.as_bytes())
    assert outline(draft) == [
        ("heading", "Tide report"),
        (
            "paragraph",
            "From: Ada Oneil <ada@example.com>\nTo: bo@example.com, cy@example.com\n"
            "Date: 2026-11-23 10:00 +0100",
        ),
        ("paragraph", "Hello Bo,"),
        ("paragraph", "the tide is high."),
        ("paragraph", "-- \nAda\nHarbour office"),
        ("paragraph", "Attachments: 潮汐 report.pdf, tides.csv"),
    ]
    assert (draft.title, draft.title_source) == ("Tide report", "metadata")
    assert draft.metadata == {"author": "Ada Oneil", "date": "2026-11-23"}
    assert draft.mime == "message/rfc822"
    assert draft.blocks[-1].path == ("Tide report",)


@pytest.mark.parametrize("declared", ["gb2312", "GBK", "x-unknown", "utf-8", ""])
@pytest.mark.parametrize("encoding", ["gb18030", "utf-8"])
def test_chinese_in_any_charset_under_any_name(load, declared: str, encoding: str) -> None:
    type_ = f"text/plain; charset={declared}" if declared else "text/plain"
    draft = load(
        "a.eml",
        f"Subject: =?{declared or 'gbk'}?B?{encoded('港口潮汐报告與測量', encoding)}?=\n"
        f"Content-Type: {type_}\nContent-Transfer-Encoding: base64\n\n{encoded(GREETING * 3, encoding)}",
    )
    assert draft.title == "港口潮汐报告與測量"
    assert GREETING in draft.text


def test_a_charset_of_seven_bits(load) -> None:
    head = "Subject: =?hz-gb-2312?Q?~=7B{}~=7D?=\nContent-Type: text/plain; charset=hz-gb-2312\n\n"
    body = GREETING.encode("hz").decode()
    assert load("a.eml", f"Subject: x\nContent-Type: text/plain; charset=hz-gb-2312\n\n{body}").text == (
        f"x\n\n{GREETING}"
    )
    assert load("a.eml", head.format("7[?Z") + body).text.endswith(GREETING)


def test_subjects_that_break_the_rules(load) -> None:
    data = "潮汐报告".encode("gb2312")
    first, second = (base64.b64encode(piece).decode() for piece in (data[:3], data[3:]))  # within a character
    split = f"=?gb2312?B?{first}?=\n =?gb2312?B?{second}?="
    assert load("a.eml", f"Subject: {split}\n\nText").title == "潮汐报告"
    raw = b"Subject: " + "转发：关于港口潮汐报告的通知".encode("gbk") + b"\n\nText"
    assert load("a.eml", raw).title == "转发：关于港口潮汐报告的通知"
    assert load("a.eml", "Subject: Re: =?utf-8?q?Caf=C3=A9_am?= =?utf-8?q?_Hafen?= (2)\n\nText").title == (
        "Re: Café am Hafen (2)"
    )
    assert load("a.eml", "Subject: =?none?B?====?= x\n\nText").text.endswith("Text")
    assert load("harbour.eml", "From: a@b\n\nText").title == "harbour"


def test_html_is_read_where_there_is_no_plain_text(load, outline) -> None:
    page = "<html><body><h1>News</h1><p>潮汐 is <b>high</b>.</p><script>x()</script></body></html>"
    made = message(text=" \n")
    made.add_alternative(page, subtype="html", charset="gb18030", cte="quoted-printable")
    assert outline(load("a.eml", made.as_bytes()))[2:] == [
        ("heading", "News"),
        ("paragraph", "潮汐 is high."),
    ]
    assert load("a.eml", made.as_bytes()).blocks[-1].path == ("Tide report", "News")
    both = message(text="In plain text")
    both.add_alternative(page, subtype="html")
    both.get_payload()[1].add_related(
        b"GIF8", maintype="image", subtype="gif", cid="<1>", filename="image001.gif"
    )
    draft = load("a.eml", both.as_bytes())
    assert draft.text.endswith("\n\nIn plain text")


def test_an_attachment_next_to_the_html_of_an_alternative_is_named(load) -> None:
    draft = load(
        "a.eml",
        HEAD + "Content-Type: multipart/alternative; boundary=a\n\n--a\n\nPlain\n--a\n"
        "Content-Type: multipart/mixed; boundary=b\n\n--b\nContent-Type: text/html\n\n<p>Rich</p>\n--b\n"
        'Content-Type: application/pdf; name="=?gb2312?B?sai45i5wZGY=?="\n\nx\n--b--\n--a--\n',
    )
    assert draft.text.endswith("Plain\n\nAttachments: 报告.pdf")


def test_a_forwarded_message_is_a_section(load, outline) -> None:
    inner = message("Low tide", "It was low.")
    inner.add_attachment(b"x", maintype="image", subtype="png", filename="gauge.png")
    outer = message("Fwd: Low tide", "See below.")
    outer.add_attachment(inner)
    outer.add_attachment(b"x", maintype="image", subtype="png", filename="map.png")
    draft = load("a.eml", outer.as_bytes())
    assert [text for kind, text in outline(draft) if kind == "heading"] == ["Fwd: Low tide", "Low tide"]
    assert [text for _, text in outline(draft)][-2:] == ["Attachments: gauge.png", "Attachments: map.png"]
    assert [block.path for block in draft.blocks if "It was low" in draft.text[block.start : block.end]] == [
        ("Fwd: Low tide", "Low tide")
    ]


def test_noise_of_mime_is_left_out(load) -> None:
    parts = "".join(
        f"--b\nContent-Type: {kind}\n\n{text}\n"
        for kind, text in [
            ("text/plain", "Undelivered."),
            ("message/delivery-status", "Reporting-MTA: dns; mx"),
            ("text/rfc822-headers", "Received: from mx"),
            ('application/pgp-signature; name="signature.asc"', "iQEz"),
        ]
    )
    draft = load(
        "a.eml", f"Subject: x\nContent-Type: multipart/signed; boundary=b\n\nPreamble\n{parts}--b--\n"
    )
    assert draft.text == "x\n\nUndelivered."


def test_lines_broken_for_transport_are_joined(load) -> None:
    head = "Subject: x\nContent-Type: text/plain; format=flowed"
    assert load("a.eml", f"{head}\n\nOne \ntwo\n> quoted \n> text\n-- \nAda").text == (
        "x\n\nOne two\n> quoted \n> text\n-- \nAda"
    )
    assert load("a.eml", f"{head}; delsp=yes\n\n潮汐 \n很高").text == "x\n\n潮汐很高"


def test_a_long_list_of_recipients_is_cut(load) -> None:
    people = ", ".join(f"reader{number}@example.com" for number in range(100))
    draft = load("a.eml", f"To: {people}\nDate: not a date\n\nText")
    assert "reader9@example.com" in draft.text
    assert "reader20@" not in draft.text
    assert ".com, …\nDate: not a date\n\nText" in draft.text


MAILBOX = (
    "From ada@example.com Mon Nov 23 10:00:00 2026\nSubject: 第一封\nFrom: ada@example.com\n\nHello\n\n"
    ">From here on it is text.\n\nFrom noon to 12:30 we wait:\nthe tide is low.\n\n"
    "From bo at example.com  Mon Nov 23 10:05:00 2026\nSubject: Re: second\nContent-Type: text/html\n\n"
    "<h1>Big</h1><p>Answer</p>\n\n"
    "From MAILER-DAEMON Mon Nov 23 11:00:00 2026\nFrom: cy@example.com\n\nNo subject\n"
)


def test_a_mailbox_has_a_section_for_each_message(load, outline) -> None:
    draft = load("inbox.mbox", MAILBOX)
    assert outline(draft) == [
        ("heading", "第一封"),
        ("paragraph", "From: ada@example.com"),
        ("paragraph", "Hello"),
        ("paragraph", "From here on it is text."),
        ("paragraph", "From noon to 12:30 we wait:\nthe tide is low."),
        ("heading", "Re: second"),
        ("heading", "Big"),
        ("paragraph", "Answer"),
        ("paragraph", "From: cy@example.com"),
        ("paragraph", "No subject"),
    ]
    assert [block.level for block in draft.blocks if block.kind == "heading"] == [1, 1, 2]
    assert draft.blocks[-1].path == ()
    assert (draft.title, draft.title_source) == ("第一封", "metadata")
    assert load("inbox.mbox", MAILBOX.replace("\n", "\r\n")).blocks[-1].path == ()
    untitled = "From a@b Mon Nov 23 10:00:00 2026\nTo: c@d\n\nText"
    assert load("harbour_mail.mbox", untitled).title == "harbour mail"


def test_what_is_no_mail_is_refused(load) -> None:
    with pytest.raises(DocumentError, match="as an e-mail message: it does not begin with a header"):
        load("a.eml", "Just text")
    with pytest.raises(DocumentError, match="as a mailbox: it does not begin with a message"):
        load("a.mbox", "Subject: x\n\nText")


@pytest.mark.hostile("files of any kind")
def test_limits(load) -> None:
    with pytest.raises(DocumentError, match="more than are read"):
        load("a.mbox", "From a@b Mon Nov 23 10:00:00 2026\nA: b\n\n" * 20_001)
    with pytest.raises(DocumentError, match="holds more text"):
        load("a.mbox", MAILBOX, LoadLimits(max_text_chars=50))
    with pytest.raises(DocumentError, match="nested too deep"):
        load("a.eml", "Content-Type: message/rfc822\n\n" * 100 + "x")
    parameters = ";".join(f"filename*{number}*=x" for number in range(50))
    disposition = f"Content-Disposition: attachment; filename*=1; {parameters}"
    assert load("a.eml", f"Subject: x\nFrom: {'(' * 50_000}\n{disposition}\n\nText").title == "x"
