"""A page of three trajectories, open in a real browser without a head: what its tests share.

Tests that open it are skipped where there is no driver or no browser; anybody may import it.
"""

from __future__ import annotations

import contextlib
import functools
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from repl_rl.credit.ledger import ledgers
from repl_rl.records import (
    OutcomeKind,
    Problem,
    Reward,
    Scored,
    StopReason,
    Trajectory,
    Verdict,
    VerdictKind,
)
from repl_rl.viewer.page import write_page
from repl_rl.viewer.replay.annotated import Annotated

FLAGS = (
    *("--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
)
HOSTILE = (
    "</script><script>window.hacked = 1</script><!--<script>"
    "<img src=http://127.0.0.1:9/x onerror=alert(1)><iframe></iframe>{{script}}<|im_end|>"
)
PROVED = Verdict(kind=VerdictKind.PROVED, method="structural", evidence="x = 2")

Build = Callable[..., Trajectory]


def _scored(
    trajectory: Trajectory,
    line_rewards: tuple[float, ...],
    *,
    statement: str = "What is 1 + 1?",
    outcome: float = 0.0,
    verdict: Verdict | None = None,
) -> Scored:
    return Scored(
        trajectory=trajectory,
        problem=Problem(id="p", statement=statement, meta={"family": "sums"}),
        verdict=verdict,
        reward=Reward(line_rewards=line_rewards, outcome_reward=outcome),
    )


def _group(build: Build) -> list[Scored]:
    """Two siblings, one that proves and one that fails, and a hostile one of another group."""
    proves = build(
        [
            (" 1+1\n", OutcomeKind.OK_OUTPUT, "2\n>>>"),
            (" submit_final_answer(2)\n", OutcomeKind.SUBMITTED, None),
        ],
        prompt="# What is 1 + 1?\n>>>",
        stop_reason=StopReason.SUBMITTED,
        submission="2",
    )
    fails = build([(" 1+)\n", OutcomeKind.SYNTAX_ERROR, "unmatched\n>>>")], prompt=">>>")
    hostile = build(
        [(f" # {HOSTILE} \u202e \x1b[31m\n", OutcomeKind.RUNTIME_ERROR, f"{HOSTILE}\n>>>")],
        prompt=f"# {HOSTILE}\n>>>",
        group_index=1,
        submission=HOSTILE,
    )
    said = Verdict(kind=VerdictKind.WRONG, method=HOSTILE, evidence=HOSTILE)
    return [
        _scored(proves, (0.0, 0.0), outcome=1.0, verdict=PROVED),
        _scored(fails, (-0.3,)),
        _scored(hostile, (-0.1,), statement=HOSTILE, verdict=said),
    ]


def write_viewer(path: Path, build: Build) -> None:
    """`step:1` and `step:2` are of a group of three, whose third is elsewhere; `step:3` is
    hostile, and has no texts of tokens."""
    scored = _group(build)
    rows = [
        [advantage if sampled else 0.0 for sampled in item.trajectory.loss_mask]
        for item, advantage in zip(scored, (0.5, -0.5, -0.25), strict=True)
    ]
    texts = [tuple(map(chr, item.trajectory.completion_ids)) for item in scored[:2]]
    group = ("step:1", "step:2", "step:9")
    items = [
        Annotated(
            id=f"step:{number}",
            ledger=ledger,
            siblings=group if number < 3 else ("step:3",),
            token_texts=texts[number - 1] if number < 3 else None,
            trainer_logprobs=(-1.25,) * len(ledger.scored.trajectory.completion_ids),
        )
        for number, ledger in enumerate(ledgers(scored, rows), 1)
    ]
    write_page(path, items, title=HOSTILE, notes=["sampled with Python 3.11.7"])


def write_groups(path: Path, build: Build, *advantages: tuple[float, ...]) -> None:
    """A group for each of `advantages`, a trajectory of one wrong answer for each number."""
    line = (" submit_final_answer(3)\n", OutcomeKind.SUBMITTED, None)
    rows = [(group, value) for group, values in enumerate(advantages) for value in values]
    scored = [
        _scored(
            build([line], group_index=group, submission="3"),
            (0.0,),
            verdict=Verdict(kind=VerdictKind.WRONG),
        )
        for group, _ in rows
    ]
    found = ledgers(scored, [[value] * len(line[0]) for _, value in rows])
    items = [
        Annotated(id=f"g{group}:{number}", ledger=ledger, siblings=(f"g{group}",))
        for number, ((group, _), ledger) in enumerate(zip(rows, found, strict=True), 1)
    ]
    write_page(path, items, title="groups")


class Viewer:
    """A browser that shows one file. `requests`, `dialogs` and `errors` are of all its pages
    since `close`."""

    def __init__(self, browser: Any, path: Path) -> None:
        self.url = path.as_uri()
        self.requests: list[str] = []
        self.dialogs: list[str] = []
        self.errors: list[str] = []
        self._pages: list[Any] = []
        # To start a context takes longer than a test: one for each size and scheme.
        self._context = functools.cache(functools.partial(_context, browser))

    def open(
        self,
        hash: str = "",
        *,
        width: int = 1440,
        height: int = 900,
        scheme: str = "light",
        path: Path | None = None,
    ) -> Any:
        """The page at an address in it, such as `#step:2`; with `path` another page."""
        page = self._context(width, height, scheme).new_page()
        self._pages.append(page)
        page.on("request", lambda request: self.requests.append(request.url))
        page.on("dialog", self._dismiss)
        page.on("pageerror", lambda error: self.errors.append(str(error)))
        page.goto((self.url if path is None else path.as_uri()) + hash)
        return page

    def close(self) -> None:
        """Close its pages and forget what they did."""
        for page in self._pages:
            page.close()
        for kept in (self._pages, self.requests, self.dialogs, self.errors):
            kept.clear()

    def _dismiss(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()


def _context(browser: Any, width: int, height: int, scheme: str) -> Any:
    viewport = {"width": width, "height": height}
    return browser.new_context(viewport=viewport, color_scheme=scheme, reduced_motion="reduce")


@contextlib.contextmanager
def open_viewer(build: Build, folder: Path) -> Iterator[Viewer]:
    """A browser with a page in `folder`, whose trajectories `build` makes."""
    playwright = pytest.importorskip("playwright.sync_api", reason="needs the package playwright")
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("needs chromium")
    path = folder / "page.html"
    write_viewer(path, build)
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=list(FLAGS))
        yield Viewer(browser, path)
        browser.close()


def facts(page: Any) -> dict[str, str]:
    """Facts that the panel shows of a token, by name."""
    return dict(
        page.eval_on_selector_all(
            "#inspector dl > div",
            "rows => rows.map(row => [row.children[0].textContent, row.children[1].textContent])",
        )
    )


def listed(page: Any) -> list[str]:
    # `inner_text` is empty until a frame has shown that an entry is in view.
    return [found.split()[0] for found in page.locator("#list .names").all_text_contents()]


def chosen(page: Any) -> str:
    return str(page.inner_text(".permalink"))


def wait_for(page: Any, id: str) -> None:
    """Until this trajectory is open: a page hears later that a link has changed its address."""
    page.locator(".permalink", has_text=id).wait_for()
