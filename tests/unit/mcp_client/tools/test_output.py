from __future__ import annotations

import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st
from mcp_types import (
    AudioContent,
    BlobResourceContents,
    CallToolResult,
    ContentBlock,
    EmbeddedResource,
    ImageContent,
    ResourceLink,
    TextContent,
    TextResourceContents,
)

from loom_core.mcp_client.tools.output import TOKEN_CAP, call_output
from loom_core.tokens import estimate_tokens
from loom_core.tools.interface import OutputFile, ToolOutput

_DATA = base64.b64encode(b"picture").decode()


def _output(*content: ContentBlock, structured: object = None, is_error: bool = False) -> ToolOutput:
    return call_output(
        CallToolResult(content=list(content), structured_content=structured, is_error=is_error), server="s"
    )


def test_texts_follow_one_another() -> None:
    output = _output(TextContent(text="一"), TextContent(text="two"))

    assert output == ToolOutput("一\n\ntwo", metadata={"server": "s"})


def test_a_failure_of_the_tool_is_one() -> None:
    assert _output(TextContent(text="no such file"), is_error=True).is_error


def test_images_are_for_models_to_see() -> None:
    output = _output(TextContent(text="a"), ImageContent(data=_DATA, mime_type="image/png"))

    assert [(part.data, part.media_type) for part in output.parts] == [(b"picture", "image/png")]
    assert output.text == "a"
    assert output.message("1").parts[1] is output.parts[0]


def test_an_image_has_the_type_of_its_content() -> None:
    jpeg = base64.b64encode(b"\xff\xd8\xff\xe0 and so on").decode()
    output = _output(ImageContent(data=jpeg, mime_type="image/png"))

    assert [part.media_type for part in output.parts] == ["image/jpeg"]


def test_an_image_too_large_for_vendors_is_named() -> None:
    output = _output(ImageContent(data="A" * (8 << 20), mime_type="image/png"))

    assert output.parts == ()
    assert output.text == "[image not shown: image/png, 6,291,456 bytes]"


def test_what_models_cannot_take_is_named() -> None:
    output = _output(
        ImageContent(data=_DATA, mime_type="image/tiff"),
        ImageContent(data="not base64!", mime_type="image/png"),
        AudioContent(data=_DATA, mime_type="audio/wav"),
    )

    assert output.parts == ()
    assert "[image not shown: image/tiff, 9 bytes]" in output.text
    assert "[image: its data cannot be read]" in output.text
    assert "[audio not shown: audio/wav, 9 bytes]" in output.text


def test_of_very_many_images_the_rest_is_named() -> None:
    output = _output(*[ImageContent(data=_DATA, mime_type="image/png")] * 25)

    assert len(output.parts) == 20
    assert output.text.count("[image not shown") == 5


def test_resources_that_are_given_whole_are_shown() -> None:
    output = _output(
        EmbeddedResource(resource=TextResourceContents(uri="kb://手册/一", text="内容")),
        EmbeddedResource(resource=BlobResourceContents(uri="kb://p", blob=_DATA, mime_type="image/png")),
    )

    assert "[resource kb://手册/一]\n内容" in output.text
    assert len(output.parts) == 1


def test_other_files_are_named_and_handed_on() -> None:
    file = BlobResourceContents(uri="kb://a/报告.pdf", blob=_DATA, mime_type="application/pdf")
    broken = BlobResourceContents(uri="kb://b", blob="not base64!")
    output = _output(EmbeddedResource(resource=broken), *[EmbeddedResource(resource=file)] * 25)

    assert output.files == (OutputFile(b"picture", "kb://a/报告.pdf", "application/pdf"),) * 20
    assert output.text.startswith("[resource kb://b: its data cannot be read]")
    assert output.text.count("[resource kb://a/报告.pdf: application/pdf, 7 bytes]") == 20
    assert output.text.count("[resource kb://a/报告.pdf not shown: application/pdf, 9 bytes]") == 5


def test_links_say_where_and_what() -> None:
    link = ResourceLink(
        uri="file:///a.md",
        name="a",
        title="手册",
        mime_type="text/markdown",
        size=1234,
        description="怎么\n装",
    )

    assert _output(link).text == "[resource file:///a.md (手册, text/markdown, 1,234 bytes): 怎么 装]"
    assert _output(ResourceLink(uri="file:///b", name="b")).text == "[resource file:///b (b)]"


def test_data_without_text_is_its_text() -> None:
    output = _output(structured={"题": [1]})

    assert output.text == '{"题": [1]}'
    assert output.structured == {"题": [1]}


def test_a_text_that_is_too_long_is_cut_and_says_so() -> None:
    for text in ("word " * 40_000, "长" * 100_000, "word" * 10_000 + "长" * 100_000):
        output = _output(TextContent(text=text))

        shown, _, note = output.text.partition(" …\n\n[truncated: ")
        assert text.startswith(shown)
        assert 0.9 * TOKEN_CAP < estimate_tokens(shown) <= TOKEN_CAP
        assert note.startswith(f"{len(shown):,} of {len(text):,} characters shown")
        assert output.metadata["characters"] == len(text)


def test_half_a_character_does_not_stop_what_is_sent_on() -> None:
    _output(TextContent(text="a\ud800b")).text.encode()


def test_nothing_is_an_empty_text() -> None:
    assert _output().message("1").text == ""


_ODD = ["\ud800", "\x1b]0;x\x07", "\u202e", "]\n[resource", "%", "=" * 9]
_ANY = st.text(max_size=30) | st.sampled_from(_ODD)
_KIND = st.sampled_from(["image/png", "image/svg+xml", "", "text/html\n", "../../x"])
_BLOCKS = st.lists(
    st.builds(TextContent, text=_ANY)
    | st.builds(ImageContent, data=_ANY, mime_type=_KIND)
    | st.builds(AudioContent, data=_ANY, mime_type=_KIND)
    | st.builds(ResourceLink, name=_ANY, uri=_ANY, title=_ANY | st.none(), description=_ANY, mime_type=_KIND)
    | st.builds(
        EmbeddedResource,
        resource=st.builds(TextResourceContents, uri=_ANY, text=_ANY)
        | st.builds(BlobResourceContents, uri=_ANY, blob=_ANY, mime_type=_KIND),
    ),
    max_size=6,
)


@pytest.mark.hostile("MCP servers")
@given(blocks=_BLOCKS, structured=st.none() | st.dictionaries(_ANY, _ANY, max_size=3), is_error=st.booleans())
def test_whatever_a_server_answers_is_a_bounded_text_that_utf_8_can_hold(
    blocks, structured, is_error
) -> None:
    output = _output(*blocks, structured=structured, is_error=is_error)

    assert output.is_error is is_error
    assert output.text.encode().decode() == output.text
    assert estimate_tokens(output.text) <= TOKEN_CAP + 200  # and the line that says what was cut
    assert {image.media_type for image in output.parts} <= {"image/png"}


@pytest.mark.hostile("MCP servers")
@pytest.mark.parametrize("uri", ["a]\n[resource b", "a\x1b[2Jb", "a\u202eb", "a\r\nb"])
def test_what_a_resource_is_called_stays_in_its_line(uri) -> None:
    output = _output(ResourceLink(name=uri, uri=uri, description=uri))

    assert len(output.text.splitlines()) == 1
    assert not set(output.text) & set("\x1b\u202e")
