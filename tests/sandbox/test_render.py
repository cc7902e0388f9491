"""Text a kernel wrote becomes text a transcript may hold."""

import pytest

from repl_sandbox.render import clean, number_addresses, render, set_apart


def shown(head: str, tail: str = "", *, num_omitted: int = 0, max_chars: int = 100) -> str:
    return render(head, tail, num_omitted=num_omitted, max_chars=max_chars, ordinals={})[0]


def test_addresses_become_ordinals_in_order_of_first_sight() -> None:
    ordinals: dict[str, str] = {}
    first = number_addresses("<f at 0x7f01> <g at 0x7f02> <f at 0x7f01>", ordinals)
    assert first == "<f at 0x1> <g at 0x2> <f at 0x1>"
    assert number_addresses("<h at 0x7f03> <g at 0x7f02>", ordinals) == "<h at 0x3> <g at 0x2>"


def test_numbers_that_are_no_addresses_stay() -> None:
    assert number_addresses("0x10 at 10", {}) == "0x10 at 10"


def test_terminal_sequences_go_whole() -> None:
    assert clean("\x1b[31mred\x1b[0m \x1b]0;title\x07\x1b]8;;u\x1b\\x \x1b(B\x1bc.") == "red x ."


def test_control_and_bidi_characters_go_newline_and_tab_stay() -> None:
    assert clean("a\0\x07\x7f\u202e\u2066\u200fb\tc\n") == "ab\tc\n"
    assert clean("a\0\x07\x08\r\x0b\x7f\x85\u202e\u2066\u200fb\tc\n") == "ab\tc\n"


def test_lone_surrogates_are_replaced() -> None:
    assert clean("a\ud800b\udfff") == "a\ufffdb\ufffd"


def test_text_ends_in_a_newline_unless_empty() -> None:
    assert shown("") == ""
    assert shown("a") == "a\n"
    assert shown("a\n") == "a\n"
    assert shown("\x1b[0m") == ""


def test_long_text_keeps_two_thirds_from_its_head_and_one_from_its_tail() -> None:
    text = "0123\n... [4 characters omitted] ...\n89\n"
    assert render("0123456789", max_chars=6, ordinals={}) == (text, True)


def test_text_of_exactly_the_limit_is_whole() -> None:
    assert render("012345", max_chars=6, ordinals={}) == ("012345\n", False)


def test_what_the_kernel_left_out_is_counted() -> None:
    expected = "abcd\n... [104 characters omitted] ...\nyz\n"
    assert shown("abcdef", "wxyz", num_omitted=100, max_chars=6) == expected


def test_a_tail_without_a_gap_joins_its_head() -> None:
    assert shown("abc", "def") == "abcdef\n"


def test_an_address_across_head_and_tail_of_one_text_is_one_address() -> None:
    assert shown("<f at 0x7f", "01>") == "<f at 0x1>\n"


@pytest.mark.parametrize(
    ("written", "shown"),
    [
        ("12\r34", "12\n34"),
        ("1\f2\v3\b4\x855", "1\n2\n3\n4\n5"),
        ("one\r\ntwo\r\r\nthree\r", "one\ntwo\nthree"),
        ("\r12\n\r34", "12\n34"),
        ("\r\r12\n\r\r34", "12\n34"),
        ("1\x1b[2;5H2\x1b[C3\x1b[A4\x1bE5", "1\n2\n3\n4\n5"),
        ("\x1b[31m12\x1b[0m34\x1b[2K5\x07\x006", "123456"),
        ("50%\r\x1b[K100%\n", "50%\n100%\n"),
    ],
)
def test_what_a_screen_shows_in_two_places_does_not_run_together(written: str, shown: str) -> None:
    assert clean(set_apart(written)) == shown


def test_a_row_of_moves_takes_no_longer_than_it_is_long() -> None:
    """A search from each of them to the last one would take a minute."""
    assert clean(set_apart("x" + "\r" * 100_000 + "\n")) == "x\n"
