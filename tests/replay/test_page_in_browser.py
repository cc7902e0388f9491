"""The page as a person meets it: what tokens say, how one finds and goes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from page_browser import Build, Viewer, chosen, facts, listed, wait_for, write_groups

pytestmark = pytest.mark.slow


def test_a_token_under_the_pointer_shows_its_numbers(viewer: Viewer) -> None:
    page = viewer.open("#step:1")
    page.locator("#transcript .token.sampled").nth(1).hover()
    # ` 1+1\n` is five tokens and ` submit_final_answer(2)\n` is 24, `1+)\n` of the sibling is five:
    # 34 tokens of |advantage| 0.5, so the line has 5/34 and each of its tokens 1/34.
    assert facts(page) == {
        "token id": "49",
        "position": "1 of 34, after 20 of the prompt",
        "written by": "sampled",
        "loss mask": "1",
        "log p, sampler": "-1.0000 p = 36.8%",
        "log p, trainer": "-1.2500 p = 28.7%",
        "gap": "-0.2500 trainer less sampler",
        "advantage": "+0.500 \u2191 pushed up",
        "line": "1",
        "outcome": "ok_output",
        "line's reward": "+0.000",
        "line's share": "14.7% of its group's gradient",
        "token's share": "2.9% of the same",
    }


def test_an_injected_token_is_shown_as_never_trained(viewer: Viewer) -> None:
    page = viewer.open("#step:1")
    page.locator("#transcript .token.injected").first.hover()
    found = facts(page)
    assert (found["written by"], found["loss mask"], found["log p, sampler"]) == (
        "injected",
        "0",
        "\u2013 never sampled",
    )


def test_a_newline_in_a_token_is_spelled_out_in_its_panel(viewer: Viewer) -> None:
    page = viewer.open("#step:1")
    page.locator("#transcript .token.sampled").nth(4).hover()
    assert page.inner_text(".token-text") == "\u21b5"


def test_sampled_and_injected_differ_in_more_than_colour(viewer: Viewer) -> None:
    page = viewer.open("#step:1")
    marks = [mark.strip() for mark in page.locator(".gutter").all_inner_texts()]
    styles = [
        page.locator(f"#transcript .token.{kind}").first.evaluate(
            "found => getComputedStyle(found).fontStyle"
        )
        for kind in ("sampled", "injected")
    ]
    assert (marks, styles) == (["", "1 +", ".", "2 +"], ["normal", "italic"])


def test_newlines_of_tokens_break_rows(viewer: Viewer) -> None:
    assert viewer.open("#step:1").locator("#transcript .text").all_inner_texts() == [
        "# What is 1 + 1?",
        ">>> 1+1\u21b5",
        "2\u21b5",
        ">>> submit_final_answer(2)\u21b5",
    ]


def test_a_line_without_texts_of_tokens_is_shown_whole_with_its_ids(viewer: Viewer) -> None:
    page = viewer.open("#step:3")
    page.locator("#transcript .token.sampled").first.hover()
    assert facts(page)["token ids"].startswith("32 35 32 60 47 115")


def test_a_token_that_was_clicked_stays_when_the_pointer_leaves(viewer: Viewer) -> None:
    page = viewer.open("#step:1")
    page.locator("#transcript .token.sampled").nth(1).click()
    page.locator("#transcript .token.sampled").nth(3).hover()
    page.locator("#heading .statement").hover()
    assert facts(page)["position"].startswith("1 of")


def test_a_token_can_be_reached_and_kept_by_keys_alone(viewer: Viewer) -> None:
    page = viewer.open("#step:1")
    for key in ("t", "ArrowRight", "ArrowRight", "Enter"):
        page.keyboard.press(key)
    pressed = page.locator('.token[aria-pressed="true"]').get_attribute("data-unit")
    assert (pressed, facts(page)["token id"]) == ("2", "43")


def test_the_list_counts_what_is_shown(viewer: Viewer) -> None:
    assert viewer.open().inner_text("#count") == "3 of 3"


@pytest.mark.parametrize(
    ("name", "value", "left"),
    [
        ("outcome", "syntax_error", ["step:2"]),
        ("outcome", "any error", ["step:2", "step:3"]),
        ("verdict", "proved", ["step:1"]),
        ("verdict", "none", ["step:2"]),
        ("stop", "submitted", ["step:1"]),
        ("family", "sums", ["step:1", "step:2", "step:3"]),
    ],
)
def test_a_filter_leaves_what_it_names(
    viewer: Viewer, name: str, value: str, left: list[str]
) -> None:
    page = viewer.open()
    page.select_option(f"#filter-{name}", value)
    assert (listed(page), page.inner_text("#count")) == (left, f"{len(left)} of 3")


@pytest.mark.parametrize(
    ("query", "left"),
    [
        ("1 + 1?", ["step:1", "step:2"]),
        ("SUBMIT_final", ["step:1"]),
        ("unmatched", ["step:2"]),
        ("nobody wrote this", []),
    ],
)
def test_a_search_reads_statements_lines_and_observations(
    viewer: Viewer, query: str, left: list[str]
) -> None:
    page = viewer.open()
    page.fill("#search", query)
    assert listed(page) == left


def test_clearing_a_search_brings_all_back(viewer: Viewer) -> None:
    page = viewer.open()
    page.fill("#search", "unmatched")
    page.click("#clear")
    assert page.inner_text("#count") == "3 of 3"


@pytest.mark.parametrize(
    ("order", "ids"),
    [
        ("best", ["step:1", "step:3", "step:2"]),
        ("worst", ["step:2", "step:3", "step:1"]),
        # A quarter of over 100 tokens, a half of 29 and of 5.
        ("gradient", ["step:3", "step:1", "step:2"]),
    ],
)
def test_the_list_is_put_in_order(viewer: Viewer, order: str, ids: list[str]) -> None:
    page = viewer.open()
    page.select_option("#sort", order)
    assert listed(page) == ids


def test_j_and_k_walk_the_list(viewer: Viewer) -> None:
    page = viewer.open()
    places = []
    for key in "jjjk":
        page.keyboard.press(key)
        places.append(chosen(page))
    assert places == ["step:2", "step:3", "step:3", "step:2"]


def test_j_walks_what_a_filter_leaves(viewer: Viewer) -> None:
    page = viewer.open("#step:2")
    page.select_option("#filter-verdict", "proved")
    page.locator("#heading .statement").click()
    page.keyboard.press("j")
    assert chosen(page) == "step:1"


def test_keys_typed_into_the_search_are_text(viewer: Viewer) -> None:
    page = viewer.open()
    page.keyboard.press("/")
    page.keyboard.type("jj?")
    assert (page.input_value("#search"), chosen(page)) == ("jj?", "step:1")


@pytest.mark.parametrize(("key", "title"), [("l", "ledger-title"), ("s", "siblings-title")])
def test_a_key_goes_to_a_section(viewer: Viewer, key: str, title: str) -> None:
    page = viewer.open()
    page.keyboard.press(key)
    assert page.evaluate("document.activeElement.id") == title


def test_a_question_mark_opens_the_help_and_escape_closes_it(viewer: Viewer) -> None:
    page = viewer.open()
    states = []
    for key in ("?", "Escape"):
        page.keyboard.press(key)
        states.append(page.locator("#help").is_visible())
    assert states == [True, False]


def test_everything_in_the_order_of_tab_shows_its_focus(viewer: Viewer) -> None:
    page = viewer.open()
    shown = []
    for _ in range(30):
        page.keyboard.press("Tab")
        shown.append(
            page.evaluate(
                """() => {
                  const found = document.activeElement;
                  return [found.outerHTML.slice(0, 60), getComputedStyle(found).outlineStyle];
                }"""
            )
        )
    assert [name for name, style in shown if style == "none" and "<body" not in name] == []


def test_an_address_opens_its_trajectory(viewer: Viewer) -> None:
    assert chosen(viewer.open("#step:2")) == "step:2"


def test_a_trajectory_leaves_its_address(viewer: Viewer) -> None:
    page = viewer.open()
    page.keyboard.press("j")
    # The driver hears of it later than the page.
    assert page.evaluate("location.href") == f"{viewer.url}#step:2"


@pytest.mark.parametrize("name", ["#step:99", "#%E0%A4%A", "#%3Cimg%20src=x%3E"])
def test_an_address_that_is_not_there_is_said(viewer: Viewer, name: str) -> None:
    page = viewer.open(name)
    assert "is not among the trajectories" in page.inner_text("#notice")
    assert viewer.errors == []


def test_the_ledger_has_a_row_for_each_line(viewer: Viewer) -> None:
    rows = viewer.open("#step:2").locator("#ledger tbody tr").all_inner_texts()
    # 5 of 34 tokens of the group.
    assert [row.split() for row in rows] == [
        ["1", "1+)", "syntax_error", "-0.30", "-0.500", "5", "14.7%", "0.0", "0.0"]
    ]


def test_a_line_of_the_ledger_leads_to_its_tokens(viewer: Viewer) -> None:
    page = viewer.open("#step:1")
    page.locator("#ledger button").nth(1).click()
    assert facts(page)["line"] == "2"


def test_a_sibling_is_one_click_away(viewer: Viewer) -> None:
    page = viewer.open("#step:1")
    page.locator(".sibling").nth(1).click()
    wait_for(page, "step:2")
    assert chosen(page) == "step:2"


def test_siblings_that_are_not_in_the_page_are_counted(viewer: Viewer) -> None:
    said = viewer.open("#step:1").inner_text("#siblings .hint")
    assert said == "2 of its group of 3 are in this page; 1 is not."


def test_the_background_follows_the_measure(viewer: Viewer) -> None:
    page = viewer.open("#step:2")
    token = page.locator("#transcript .token.sampled").first
    classes = {}
    for name in ("advantage", "logprob", "reward"):
        page.check(f'input[value="{name}"]', force=True)
        shown = token.evaluate("found => found.className.split(' ').slice(2).join()")
        classes[name] = (shown, token.evaluate("found => found.style.getPropertyValue('--heat')"))
    # -0.5 of 0.5; -1 of 6 nats; -0.3 of 0.3.
    assert classes == {
        "advantage": ("down", "1.000"),
        "logprob": ("down", "0.167"),
        "reward": ("down", "1.000"),
    }


@pytest.mark.parametrize(
    ("advantages", "opened"),
    [
        (((0, 0), (0, 0.5, -0.5), (0, 0)), "g1:4"),
        (((0.5, -0.5), (0, 0)), "g0:1"),
        (((0, 0),), "g0:1"),
        (((0.5, -0.5),), "g0:1"),
    ],
)
def test_the_page_opens_on_a_trajectory_with_signal(
    viewer: Viewer, tmp_path: Path, make_trajectory: Build, advantages: Any, opened: str
) -> None:
    write_groups(tmp_path / "groups.html", make_trajectory, *advantages)
    page = viewer.open(path=tmp_path / "groups.html")
    assert chosen(page) == opened


def test_one_extreme_does_not_rule_the_colours(
    viewer: Viewer, tmp_path: Path, make_trajectory: Build
) -> None:
    write_groups(tmp_path / "groups.html", make_trajectory, (0.25, 0.5, -0.5, 0.5, 100.0))
    page = viewer.open(path=tmp_path / "groups.html")
    heat = page.locator("#transcript .token.sampled").first.evaluate(
        "found => found.style.getPropertyValue('--heat')"
    )
    assert heat == "0.500"
    assert "+0.50 or more: pushed up" in page.inner_text("#legend")


def test_a_wrong_answer_is_not_shown_in_the_colour_of_a_right_one(
    viewer: Viewer, tmp_path: Path, make_trajectory: Build
) -> None:
    """Wherever a submission is marked: list, transcript, ledger, siblings."""
    write_groups(tmp_path / "groups.html", make_trajectory, (0.5, -0.5))
    page = viewer.open(path=tmp_path / "groups.html")
    good = page.evaluate(
        "() => { const e = document.createElement('i'); e.className = 'good';"
        " document.body.append(e); return getComputedStyle(e).color }"
    )
    colours = page.eval_on_selector_all(
        ".submitted, .submitted > .what",
        "all => all.flatMap(e => { const s = getComputedStyle(e);"
        " return [s.color, s.backgroundColor, s.borderLeftColor] })",
    )
    assert len(colours) >= 3 * 6
    assert good not in colours
    right = viewer.open("#step:1")
    assert (
        right.locator(".outcome.submitted").first.evaluate("found => getComputedStyle(found).color")
        == good
    )


def test_the_page_says_right_or_wrong_and_how_that_is_known(viewer: Viewer) -> None:
    page = viewer.open("#step:1")
    assert page.locator("#ledger .chip").first.inner_text() == "\u2713 right (exact)"
    labels = page.locator("#filter-verdict option").all_inner_texts()
    assert {"right (exact) (1)", "nothing submitted (1)"} <= set(labels)
