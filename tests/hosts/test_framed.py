"""What is between the marks comes out whole, however the stream is cut."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from pytest_qnnctx.hosts.framed import FramedStream, KeptOutput
from pytest_qnnctx.hosts.remote_shell import Marks
from pytest_qnnctx.process import KEPT_BYTES

MARKS = Marks("a1a1a1")
#: Bytes that look like the beginning of a mark, among others.
LOOKALIKE = st.lists(
    st.sampled_from([b"a", b"a1", b"a1a1a1", b"-end", b"a1a1a1-en", b"-", b"\n", b"\0", b"\xff"]),
    max_size=12,
).map(b"".join)


def cut(data: bytes, size: int) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


@given(noise=LOOKALIKE, body=LOOKALIKE, size=st.integers(1, 40))
@settings(max_examples=200)
def test_the_body_between_the_marks(noise, body, size):
    taken = bytearray()
    stream = FramedStream(MARKS, taken.extend)
    whole = noise + b"a1a1a1-begin file 644\n" + body + b"a1a1a1-end 17\n"
    for piece in cut(whole + b"later", size):
        stream.feed(piece)
    assert (stream.head, stream.code) == ("file 644", "17")
    assert taken == body
    assert stream.noise == noise


@given(body=LOOKALIKE, size=st.integers(1, 40))
@settings(max_examples=50)
def test_what_has_come_is_handed_on_at_once(body, size):
    taken = bytearray()
    stream = FramedStream(MARKS, taken.extend)
    for piece in cut(b"a1a1a1-begin \n" + body + b"words", size):
        stream.feed(piece)
    assert taken == body + b"words"
    assert stream.code is None


def test_endless_noise_is_not_kept():
    stream = FramedStream(MARKS, lambda _: None)
    for _ in range(100):
        stream.feed(b"n" * 10_000)
    assert stream.head is None
    assert 0 < len(stream.noise) < 10_000
    stream.feed(b"a1a1a1-begin x\n")
    assert stream.head == "x"


def test_a_short_output_is_kept_whole():
    kept = KeptOutput()
    for piece in (b"a\xff", "é".encode()[:1], "é".encode()[1:]):
        kept.add(piece)
    assert kept.text() == "a\ufffdé"


def test_of_a_long_output_both_ends_are_kept():
    kept = KeptOutput()
    kept.add(b"first")
    for _ in range(40):
        kept.add(b"x" * (1 << 20))
    kept.add(b"last")
    text = kept.text()
    assert text.startswith("first")
    assert text.endswith("last")
    assert len(text) < KEPT_BYTES * 1.6
    left_out = int(text.partition("[... ")[2].split()[0])
    assert left_out + len(text) - len(f"\n[... {left_out} bytes left out ...]\n") == (40 << 20) + 9
