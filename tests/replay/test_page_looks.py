"""The page as a browser takes it: hostile text, requests, colours, screens."""

from __future__ import annotations

import pytest

from page_browser import HOSTILE, Viewer

pytestmark = pytest.mark.slow


def test_hostile_text_becomes_no_element_and_runs_nothing(viewer: Viewer) -> None:
    page = viewer.open("#step:3")
    page.locator("#transcript .token.sampled").first.click()
    page.fill("#search", "hacked")
    assert page.locator("img, iframe, body script:not([type])").count() == 0
    assert page.evaluate("window.hacked") is None
    assert (viewer.dialogs, viewer.errors) == ([], [])


def test_hostile_text_is_shown_as_it_is(viewer: Viewer) -> None:
    shown = viewer.open("#step:3").locator("#transcript .token.sampled").first.inner_text()
    assert shown == f" # {HOSTILE} \u2039U+202E\u203a \u2039U+001B\u203a[31m\u21b5"


def test_nothing_is_requested_but_the_page(viewer: Viewer) -> None:
    page = viewer.open()
    for key in "jjls?":
        page.keyboard.press(key)
    assert {url.split("#")[0] for url in viewer.requests} <= {viewer.url, "data:,"}


def test_a_request_would_be_refused(viewer: Viewer) -> None:
    attempt = "fetch('data:,x').then(() => 'answered', () => 'refused')"
    assert viewer.open().evaluate(attempt) == "refused"


def test_text_given_as_markup_would_be_refused(viewer: Viewer) -> None:
    attempt = "() => { try { document.body.innerHTML = '<b>' } catch (e) { return e.name } }"
    assert viewer.open().evaluate(attempt) == "TypeError"


GROUND = "getComputedStyle(document.body).backgroundColor"
LIGHT, DARK = "rgb(246, 247, 248)", "rgb(20, 23, 27)"


@pytest.mark.parametrize(("scheme", "colour"), [("light", LIGHT), ("dark", DARK)])
def test_colours_follow_the_system(viewer: Viewer, scheme: str, colour: str) -> None:
    assert viewer.open(scheme=scheme).evaluate(GROUND) == colour


CONTRASTS = """() => {
  const probe = document.createElement("span");
  document.body.append(probe);
  const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
  const luminance = (colours) => {
    for (const colour of colours) {
      probe.style.color = colour;
      canvas.fillStyle = getComputedStyle(probe).color;
      canvas.fillRect(0, 0, 1, 1);
    }
    const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map((value) => {
      const part = value / 255;
      return part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (text, ...grounds) => {
    const [a, b] = [luminance([text]), luminance(grounds)].sort((x, y) => y - x);
    return (a + 0.05) / (b + 0.05);
  };
  const found = {};
  for (const text of ["ink", "muted", "accent", "good", "bad", "unsure"])
    for (const ground of ["ground", "surface", "raised"])
      found[`${text} on ${ground}`] = ratio(`var(--${text})`, `var(--${ground})`);
  for (const heat of ["up", "down"])
    found[`ink on ${heat}`] = ratio("var(--ink)", "var(--surface)",
      `color-mix(in srgb, var(--${heat}) 58%, transparent)`);
  return found;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_can_be_read_on_what_it_stands_on(viewer: Viewer, scheme: str) -> None:
    found = viewer.open(scheme=scheme).evaluate(CONTRASTS)
    assert {pair: ratio for pair, ratio in found.items() if ratio < 4.5} == {}


@pytest.mark.parametrize("width", [1180, 1280, 1366, 1440, 1920])
@pytest.mark.parametrize("name", ["#step:1", "#step:3"])
def test_no_column_of_the_ledger_is_cut_on_a_screen(viewer: Viewer, width: int, name: str) -> None:
    page = viewer.open(name, width=width)
    box = page.locator("#ledger .scroller")
    assert box.evaluate("found => found.scrollWidth - found.clientWidth") == 0
