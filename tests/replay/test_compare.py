"""Laws of the comparison of a recorded line with the same line run again."""

from __future__ import annotations

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from repl_rl.records import LineOutcome, OutcomeKind
from repl_rl.viewer.replay.compare import Cause, OutcomeDifference, difference, is_cut_of, unified
from repl_sandbox.render import render, truncate

OK = OutcomeKind.OK_OUTPUT

texts = st.text(max_size=200) | st.text(alphabet="ab\n", max_size=200)
notes = st.integers(0, 300).map(lambda n: f"\n... [{n} characters omitted] ...\n")
outputs = st.lists(texts | notes, max_size=4).map("".join)


def outcome(observation: str, kind: OutcomeKind = OK, *, is_truncated: bool = False) -> LineOutcome:
    return LineOutcome(kind=kind, observation=observation, is_truncated=is_truncated)


def different(
    recorded: LineOutcome, live: LineOutcome, *, volatile: str | None = None
) -> OutcomeDifference:
    found = difference(recorded, live, volatile=volatile)
    assert found is not None
    return found


@given(outputs, st.integers(0, 400), st.integers(0, 400))
def test_a_cut_to_a_cap_in_tokens_agrees_with_the_whole_output(
    text: str, max_chars: int, length: int
) -> None:
    live, is_live_truncated = render(text, max_chars=max_chars, ordinals={})
    recorded = truncate(live, length)
    is_truncated = is_live_truncated or recorded != live
    assert (
        difference(
            outcome(recorded, is_truncated=is_truncated),
            outcome(live, is_truncated=is_live_truncated),
        )
        is None
    )


@given(outputs, st.integers(0, 400), st.integers(0, 600))
def test_what_is_called_a_cut_is_one_at_some_length(text: str, length: int, at: int) -> None:
    whole = render(text, max_chars=300, ordinals={})[0]
    cut = truncate(whole, length)
    bent = f"{cut[:at]}!{cut[at + 1 :]}"
    every_cut = {truncate(whole, n) for n in range(len(whole))}
    assert is_cut_of(bent, whole) == (bent in every_cut)


def test_a_cut_of_another_output_differs() -> None:
    recorded = outcome(truncate("12345678\n", 6), is_truncated=True)
    assert difference(recorded, outcome("12395678\n")) is not None


def test_a_cut_counts_only_where_the_record_says_that_it_was_cut() -> None:
    whole = "12345678\n"
    assert truncate(whole, 6) == "1234\n... [3 characters omitted] ...\n8\n"
    assert difference(outcome(truncate(whole, 6), is_truncated=True), outcome(whole)) is None
    assert difference(outcome(truncate(whole, 6)), outcome(whole)) is not None


def test_a_count_too_long_for_a_number_is_no_cut() -> None:
    forged = f"1\n... [{'9' * 5000} characters omitted] ...\n2\n"
    assert not is_cut_of(forged, "12345\n")


def test_time_that_a_line_took_is_no_difference() -> None:
    recorded = LineOutcome(kind=OK, observation="2\n", wall_ms=1.0, cpu_ms=1.0)
    live = LineOutcome(kind=OK, observation="2\n", wall_ms=9.0, cpu_ms=9.0)
    assert difference(recorded, live) is None


def test_the_same_text_under_another_outcome_differs() -> None:
    found = different(outcome("2\n"), outcome("2\n", OutcomeKind.DUPLICATE))
    assert (found.cause, found.headline) == (Cause.DIVERGED, "ok_output -> duplicate")


def test_a_difference_without_an_excuse_diverged() -> None:
    found = different(outcome("[-2, 2]\n"), outcome("[2]\n"))
    assert (found.cause, found.why) == (Cause.DIVERGED, "")
    assert found.headline == "[-2, 2] -> [2]"
    assert (found.recorded, found.live) == ("[-2, 2]\n", "[2]\n")


def test_a_difference_of_a_volatile_line_carries_its_reason() -> None:
    found = different(outcome("1\n"), outcome("2\n"), volatile="reads the clock")
    assert (found.cause, found.why) == (Cause.VOLATILE, "reads the clock")


def test_a_volatile_line_that_agrees_is_no_difference() -> None:
    assert difference(outcome("1\n"), outcome("1\n"), volatile="reads the clock") is None


@pytest.mark.parametrize("limit", ["timeout", "memory", "killed", "died"])
@pytest.mark.parametrize("is_recorded", [True, False])
def test_a_limit_on_one_side_alone_is_about_limits(limit: str, is_recorded: bool) -> None:
    sides = [outcome("", OutcomeKind(limit)), outcome("2\n")]
    found = different(*(sides if is_recorded else reversed(sides)))
    assert found.cause is Cause.LIMITS


def test_a_limit_comes_before_an_excuse_for_nothing_is_known_of_what_follows() -> None:
    found = different(outcome("2\n"), outcome("", OutcomeKind.TIMEOUT), volatile="reads the clock")
    assert found.cause is Cause.LIMITS
    assert found.why == "ok_output when recorded, timeout when run again"


def test_two_limits_that_are_not_the_same_are_about_limits() -> None:
    found = different(outcome("", OutcomeKind.TIMEOUT), outcome("", OutcomeKind.KILLED))
    assert found.cause is Cause.LIMITS


def test_an_interrupt_at_another_place_is_about_limits() -> None:
    recorded = outcome("0\n1\nKeyboardInterrupt\n", OutcomeKind.TIMEOUT)
    live = outcome("0\nKeyboardInterrupt\n", OutcomeKind.TIMEOUT)
    found = different(recorded, live)
    assert (found.cause, found.why) == (Cause.LIMITS, "timeout at another place")


@pytest.mark.parametrize("is_recorded", [True, False])
def test_an_output_limit_on_one_side_alone_diverged_for_characters_are_counted(
    is_recorded: bool,
) -> None:
    sides = [outcome("", OutcomeKind.OUTPUT_LIMIT), outcome("2\n")]
    found = different(*(sides if is_recorded else reversed(sides)))
    assert (found.cause, found.why) == (Cause.DIVERGED, "")


def test_an_output_limit_of_a_volatile_line_is_volatile() -> None:
    recorded, live = outcome("2\n"), outcome("", OutcomeKind.OUTPUT_LIMIT)
    found = different(recorded, live, volatile="reads the clock")
    assert (found.cause, found.why) == (Cause.VOLATILE, "reads the clock")


@pytest.mark.parametrize("is_recorded", [True, False])
def test_an_output_limit_against_a_timeout_is_about_limits(is_recorded: bool) -> None:
    sides = [outcome("", OutcomeKind.OUTPUT_LIMIT), outcome("", OutcomeKind.TIMEOUT)]
    assert different(*(sides if is_recorded else reversed(sides))).cause is Cause.LIMITS


def test_two_output_limits_with_other_outputs_diverged_for_characters_are_counted() -> None:
    kind = OutcomeKind.OUTPUT_LIMIT
    assert different(outcome("a\n", kind), outcome("b\n", kind)).cause is Cause.DIVERGED


def test_a_headline_names_the_outcomes_and_the_first_lines_that_differ() -> None:
    recorded = outcome("a\nb\nc\n")
    live = outcome("a\nNameError: x\n", OutcomeKind.NAME_ERROR)
    assert different(recorded, live).headline == "ok_output -> name_error; b -> NameError: x"


def test_a_headline_says_where_one_side_has_nothing() -> None:
    found = different(outcome("2\n"), outcome("", OutcomeKind.OK_SILENT))
    assert found.headline == "ok_output -> ok_silent; 2 -> (nothing)"


def test_a_headline_shows_a_difference_far_to_the_right() -> None:
    same = "0123456789" * 20
    found = different(outcome(f"{same}x\n"), outcome(f"{same}y\n"))
    assert found.headline == "...890123456789x -> ...890123456789y"


def test_a_headline_stays_short() -> None:
    found = different(outcome("a" * 5000 + "\n"), outcome("b" * 5000 + "\n"))
    assert found.headline == f"{'a' * 48}... -> {'b' * 48}..."


def test_what_cannot_be_seen_is_spelled_out() -> None:
    found = different(outcome("a\n"), outcome("a\x1b[31m\n"))
    assert found.headline == "'a\\n' -> 'a\\x1b[31m\\n'"


def test_a_difference_holds_nothing_that_a_terminal_obeys() -> None:
    hostile = "\x1b]0;title\x07\u202eabc\x9b2J\n"
    found = different(outcome(hostile), outcome("2\n"))
    assert (found.recorded, found.headline) == ("abc2J\n", "abc2J -> 2")


def test_a_side_is_shortened_in_its_middle() -> None:
    found = different(outcome("a" * 9000 + "\n"), outcome("2\n"))
    assert found.recorded == truncate("a" * 9000 + "\n", 8192)


def test_a_diff_shows_what_left_and_what_came() -> None:
    assert unified("a\nb\nc\n", "a\nB\nc\n") == [" a", "-b", "+B", " c"]


def test_observations_that_agree_have_no_diff() -> None:
    assert unified("a\n", "a\n") == []


def test_a_diff_keeps_two_lines_around_a_change() -> None:
    recorded = "".join(f"{n}\n" for n in range(10))
    assert unified(recorded, recorded.replace("5", "five")) == [
        " 3", " 4", "-5", "+five", " 6", " 7",
    ]  # fmt: skip


def test_a_diff_has_a_gap_between_two_changes_far_apart() -> None:
    recorded = "".join(f"{n}\n" for n in range(10))
    live = recorded.replace("0", "zero").replace("9", "nine")
    assert unified(recorded, live) == [
        "-0", "+zero", " 1", " 2", " ...", " 7", " 8", "-9", "+nine",
    ]  # fmt: skip


def test_a_diff_against_nothing_is_all_of_one_side() -> None:
    assert unified("", "a\nb\n") == ["+a", "+b"]


def test_a_long_diff_counts_what_it_leaves_out() -> None:
    rows = unified("", "".join(f"{n}\n" for n in range(50)), max_lines=4)
    assert rows == ["+0", "+1", "+2", " ... 47 more lines"]


def test_a_diff_spells_out_what_cannot_be_seen() -> None:
    assert unified("a\n", "a\x1b[31m\n") == ["-'a\\n'", "+'a\\x1b[31m\\n'"]


@given(outputs, outputs)
def test_every_line_of_a_diff_says_whose_it_is(recorded: str, live: str) -> None:
    rows = unified(recorded, live)
    assert {row[0] for row in rows} <= set(" -+")
    assert bool(rows) == (recorded != live)


@given(outputs, outputs)
def test_every_difference_has_a_headline_of_one_line(recorded: str, live: str) -> None:
    assume(recorded != live)
    headline = different(outcome(recorded), outcome(live)).headline
    assert "\n" not in headline
    assert headline


def frames(folder: str, error: str = "ValueError: no") -> str:
    return (
        f'Traceback (most recent call last):\n  File "{folder}/sympy/a.py", line 1, in f\n{error}\n'
    )


def test_packages_in_another_folder_are_no_divergence() -> None:
    error = OutcomeKind.RUNTIME_ERROR
    bare = frames("/b").replace("/b/", "")  # as a kernel prints it
    for live in (frames("/b"), bare):
        found = different(outcome(frames("/a/site-packages"), error), outcome(live, error))
        assert (found.cause, found.why) == (Cause.VOLATILE, "shows where packages are installed")


def test_another_error_in_the_same_place_is_one() -> None:
    error = OutcomeKind.RUNTIME_ERROR
    recorded, live = frames("/a"), frames("/a", "ValueError: yes")
    assert different(outcome(recorded, error), outcome(live, error)).cause is Cause.DIVERGED


def test_another_kind_of_error_in_another_place_is_one() -> None:
    recorded = outcome(frames("/a"), OutcomeKind.RUNTIME_ERROR)
    live = outcome(frames("/b"), OutcomeKind.NAME_ERROR)
    assert different(recorded, live).cause is Cause.DIVERGED
