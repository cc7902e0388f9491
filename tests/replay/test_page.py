"""The page as a file: what is in it, what may not be, and how it comes about."""

from __future__ import annotations

import base64
import hashlib
import json
import re
import tempfile
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from repl_rl.credit.ledger import ledgers
from repl_rl.errors import ConfigError
from repl_rl.records import OutcomeKind, Problem, Reward, Scored, Verdict, VerdictKind
from repl_rl.transcript.format import span_mask
from repl_rl.viewer.page import details_of, summary_of, write_page
from repl_rl.viewer.replay.annotated import Annotated

pytestmark = pytest.mark.slow

HOSTILE = "</script><script>alert(1)</script><!--<script>&amp;\u2028\u202e\x1b[31m<|im_end|>"

MakeAnnotated = Callable[..., Annotated]


class Parts(HTMLParser):
    """The tags of a page in order, and the text of each script element with a class."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.scripts: list[str] = []
        self.texts: dict[str, str] = {}
        self._attributes: dict[str, str | None] = {}
        self.attributes: list[dict[str, str | None]] = []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._attributes = dict(attrs)
        self.attributes.append(self._attributes)

    def handle_data(self, data: str) -> None:
        tag = self.tags[-1] if self.tags else ""
        if self._attributes.get("class") == "trajectory":
            self.scripts.append(data)
        elif data.strip():
            self.texts.setdefault(tag, data)

    @property
    def records(self) -> list[tuple[dict[str, Any], dict[str, Any]]]:
        """(what the list shows, the rest) of each trajectory."""
        found = []
        for text in filter(str.strip, self.scripts):
            head, rest = text.split("\n")
            found.append((json.loads(head), json.loads(rest)))
        return found


@pytest.fixture(scope="session")
def annotate(make_trajectory: Callable[..., Any]) -> MakeAnnotated:
    """`annotate(source, statement=..., **fields)`: a line of that source that failed, alone."""

    def build(
        source: str = " 1+)\n", statement: str = "What is 1 + 1?", **fields: Any
    ) -> Annotated:
        parts = [
            (source, OutcomeKind.SYNTAX_ERROR, "SyntaxError\n>>>"),
            (" 2\n", OutcomeKind.OK_OUTPUT, None),
        ]
        trajectory = make_trajectory(parts)
        scored = Scored(
            trajectory=trajectory,
            problem=Problem(id="p", statement=statement, meta={"family": "sums"}),
            verdict=Verdict(kind=VerdictKind.WRONG, method="value", evidence=statement),
            reward=Reward(line_rewards=(-0.3, 0.0), outcome_reward=0.5, terms={"line": -0.3}),
        )
        advantages = [[-0.25 if sampled else 0.0 for sampled in trajectory.loss_mask]]
        (ledger,) = ledgers([scored], advantages)
        return Annotated(**{"id": "step:1", "ledger": ledger, "siblings": ("step:1",), **fields})

    return build


def page_of(*items: Annotated, **options: Any) -> str:
    """The text of a page with `items`."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "page.html"
        write_page(path, items, **{"title": "a run", **options})
        return path.read_text("ascii")


def test_as_many_trajectories_are_counted_as_are_written(
    annotate: MakeAnnotated, tmp_path: Path
) -> None:
    count = write_page(tmp_path / "page.html", [annotate(), annotate()], title="a run")
    records = Parts((tmp_path / "page.html").read_text()).records
    assert (count, len(records)) == (2, 2)


def test_a_page_without_trajectories_is_a_page(tmp_path: Path) -> None:
    assert write_page(tmp_path / "page.html", [], title="a run") == 0


def test_what_is_written_is_what_was_given(annotate: MakeAnnotated) -> None:
    item = annotate()
    ((head, rest),) = Parts(page_of(item)).records
    assert head == json.loads(json.dumps(summary_of(item)))
    assert rest == json.loads(json.dumps(details_of(item)))


def test_the_list_knows_what_it_filters_and_sorts_by(annotate: MakeAnnotated) -> None:
    assert summary_of(annotate()) == {
        "id": "step:1",
        "problem": "p",
        "statement": "What is 1 + 1?",
        "family": "sums",
        "verdict": "wrong",
        "stop": "max_lines",
        "total": 0.2,
        "outcomes": ["syntax_error", "ok_output"],
        "mass": 2.0,
        "max_advantage": 0.25,
        "max_reward": 0.3,
    }


def test_a_line_carries_its_numbers(annotate: MakeAnnotated) -> None:
    # Five and three sampled tokens of one advantage: five eighths of the gradient are the first's.
    first = details_of(annotate())["lines"][0]
    assert (first["reward"], first["advantage"], first["share"]) == (-0.3, -0.25, 0.625)


def test_the_spans_in_the_page_are_those_of_the_transcript(annotate: MakeAnnotated) -> None:
    item = annotate()
    shown = details_of(item)
    mask = [sampled for start, stop, sampled, _ in shown["spans"] for _ in range(start, stop)]
    assert mask == span_mask(item.ledger.scored.trajectory)


def test_the_mask_in_the_page_is_that_of_the_loss(annotate: MakeAnnotated) -> None:
    # ` 1+)\n` sampled, `SyntaxError\n>>>` injected, ` 2\n` sampled.
    assert details_of(annotate())["mask"] == "1" * 5 + "0" * 15 + "1" * 3


def test_an_injected_token_has_no_probability_of_the_sampler(annotate: MakeAnnotated) -> None:
    assert details_of(annotate())["logprobs"] == [-1.0] * 5 + [None] * 15 + [-1.0] * 3


def test_a_number_that_is_not_finite_is_none(annotate: MakeAnnotated) -> None:
    logprobs = (float("nan"), float("-inf"), *[-0.5] * 21)
    item = annotate(trainer_logprobs=logprobs)
    ((_, rest),) = Parts(page_of(item)).records
    assert rest["trainer"][:3] == [None, None, -0.5]


def test_a_seed_is_text_for_a_browser_would_round_it(annotate: MakeAnnotated) -> None:
    assert details_of(annotate())["seed"] == "0"


@settings(max_examples=40)
@given(text=st.text(st.characters(codec=None), max_size=60))
def test_any_text_comes_back_as_it_was(annotate: MakeAnnotated, text: str) -> None:
    ((head, _),) = Parts(page_of(annotate(statement=text))).records
    assert head["statement"] == text


def test_hostile_text_adds_no_tag(annotate: MakeAnnotated) -> None:
    texts = tuple(HOSTILE for _ in range(23))
    calm = page_of(annotate(token_texts=tuple("x" * 23)))
    wild = page_of(
        annotate(statement=HOSTILE, id=HOSTILE, siblings=(HOSTILE,), token_texts=texts),
        title=HOSTILE,
        notes=[HOSTILE],
    )
    assert Parts(wild).tags == Parts(calm).tags


@pytest.mark.parametrize("character", ["<", ">", "&", "\u2028", "\u202e", "\x1b"])
def test_what_could_end_or_bend_the_data_is_not_in_it(
    annotate: MakeAnnotated, character: str
) -> None:
    (script,) = filter(str.strip, Parts(page_of(annotate(statement=HOSTILE))).scripts)
    assert character not in script


def test_a_title_is_not_read_for_markers() -> None:
    assert "<title>{{script}}</title>" in page_of(title="{{script}}")


def test_a_title_of_any_characters_is_written() -> None:
    assert "<title>&#233;&#56320;</title>" in page_of(title="\xe9\udc00")


def test_the_page_refers_to_nothing_outside(annotate: MakeAnnotated) -> None:
    outside = r"https?:|url\(|@import|\bimport\b|\bsrc=|fetch\(|XMLHttp|WebSocket|sendBeacon"
    assert re.findall(outside, page_of(annotate())) == []


def test_the_page_links_to_nothing_but_an_empty_icon(annotate: MakeAnnotated) -> None:
    links = [found["href"] for found in Parts(page_of(annotate())).attributes if "href" in found]
    assert links == ["data:,", "#reader"]


def test_the_script_makes_no_markup_out_of_text(annotate: MakeAnnotated) -> None:
    sinks = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(|Function\(|setTimeout"
    assert re.findall(sinks, page_of(annotate())) == []


@pytest.mark.parametrize("tag", ["style", "script"])
def test_the_policy_admits_style_and_script_by_their_hash(
    annotate: MakeAnnotated, tag: str
) -> None:
    text = page_of(annotate())
    opening = "<style>" if tag == "style" else '<script type="module">'
    inside = text.split(opening)[1].split(f"</{tag}>")[0]
    digest = base64.b64encode(hashlib.sha256(inside.encode()).digest()).decode()
    assert f"{tag}-src 'sha256-{digest}';" in text


def test_an_item_is_written_before_the_next_is_asked_for(
    annotate: MakeAnnotated, tmp_path: Path
) -> None:
    sizes = []

    def items() -> Iterator[Annotated]:
        for _ in range(3):
            sizes.append(sum(path.stat().st_size for path in tmp_path.iterdir()))
            yield annotate(statement="x" * 100_000)

    write_page(tmp_path / "page.html", items(), title="a run")
    assert sizes[2] - sizes[1] > 100_000


def _failing() -> Iterator[Annotated]:
    raise RuntimeError("the file ends in the middle")
    yield


def test_a_page_that_fails_leaves_the_old_one_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "page.html"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="in the middle"):
        write_page(path, _failing(), title="a run")
    assert [(found.name, found.read_text()) for found in tmp_path.iterdir()] == [
        ("page.html", "old")
    ]


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere/page\.html.*No such file"):
        write_page(tmp_path / "nowhere" / "page.html", [], title="a run")


def test_a_folder_in_the_place_of_a_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="it is a folder"):
        write_page(tmp_path, [], title="a run")


def test_a_page_has_the_words_for_each_verdict(annotate: MakeAnnotated, tmp_path: Path) -> None:
    write_page(tmp_path / "p.html", [annotate(" x\n")], title="t")
    words = {"proved": "right (exact)", "wrong": "wrong", "none": "nothing submitted"}
    page = json.loads(
        re.findall(r'<script[^>]*id="page"[^>]*>(.*?)</script>', (tmp_path / "p.html").read_text())[
            0
        ]
    )
    assert words.items() <= page["verdicts"].items()
