"""Overlays on the walk, until a key puts them away: tokens, variables, details, help.

Knows tables and texts. Does not know kernels.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar

from rich.text import Text
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical, VerticalScroll
from textual.screen import ModalScreen
from textual.widgets import DataTable, Static

from repl_rl.transcript.format import spans
from repl_rl.viewer.replay.live import Variable
from repl_rl.viewer.show.marked import INJECTED, SAMPLED
from repl_rl.viewer.stepper.sampled import Tokens
from repl_rl.viewer.stepper.screen import KEYS, MARKS
from repl_rl.viewer.stepper.texts import DIM, KEY, TITLE, cleaned, clipped, number, styled
from repl_rl.viewer.stepper.views import judged
from repl_rl.viewer.stepper.walk import Walk

_MAX_TOKENS = 2000
"""Rows of a table of tokens."""
_TOKEN = 26
"""Columns of a token's text."""

Rows = Sequence[Sequence[Text]]


class Overlay(ModalScreen[None]):
    """A title and what is below it, put away by Escape, q or the key that brought it."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,q,s,t,v,question_mark,enter", "dismiss", show=False)
    ]
    CSS = """
    Overlay { align: center middle; }
    Overlay > Vertical { border: round ansi_bright_black; padding: 0 1; height: 100%; }
    Overlay Static { height: auto; }
    Overlay DataTable { height: 1fr; }
    Overlay DataTable > .datatable--header { background: ansi_default; color: ansi_default; }
    Overlay VerticalScroll, Overlay DataTable {
        scrollbar-size-vertical: 1;
        scrollbar-color: ansi_bright_black;
        scrollbar-background: ansi_default;
    }
    """

    def __init__(self, title: str, body: Text | tuple[Sequence[str], Rows]) -> None:
        super().__init__()
        self._heading = Text.assemble((title, TITLE), ("   Esc goes back", DIM))
        self._body = body

    def compose(self) -> ComposeResult:
        with Vertical():
            yield Static(self._heading, markup=False)
            if isinstance(self._body, Text):
                with VerticalScroll():
                    yield Static(self._body, markup=False)
            else:
                yield DataTable[Text](cursor_type="none", cell_padding=1)

    def on_mount(self) -> None:
        if isinstance(self._body, Text):
            self.query_one(VerticalScroll).focus()
            return
        names, rows = self._body
        table = self.query_one(DataTable)
        table.add_columns(*(styled(name, DIM) for name in names))
        table.add_rows(rows)
        table.focus()


def variables_overlay(variables: Sequence[Variable]) -> Overlay:
    rows = [
        (
            styled(clipped(one.name, 24), SAMPLED),
            styled(clipped(one.type, 16), DIM),
            styled(clipped(one.value, 200), INJECTED),
        )
        for one in variables
    ]
    return Overlay("variables", (("name", "type", "value"), rows))


def tokens_at_hand(walk: Walk) -> Tokens | None:
    """None where nothing has run, and for a line by hand, whose tokens nobody sampled."""
    hand = walk.at_hand
    if hand is None:
        return None
    if hand.recorded is None:
        if walk.sampled is None:
            return None
        index = walk.live.at - 1
        reward = None if walk.worth is None else walk.worth.line_rewards[index]
        return walk.sampled.tokens_of(index, reward=reward)
    entry = walk.item.ledger.entries[hand.recorded.index]
    return Tokens(
        trajectory=walk.live.trajectory,
        line=entry.line,
        texts=walk.item.token_texts,
        reward=entry.reward,
        trainer_logprobs=walk.item.trainer_logprobs,
        advantage=entry.advantage,
    )


def tokens_overlay(tokens: Tokens) -> Overlay:
    """A row a token: those of a line and of what was injected after it; its reward above them."""
    names = ["at", "token", "id", "mask", "sampler"]
    names += [] if tokens.trainer_logprobs is None else ["trainer"]
    names += [] if tokens.advantage is None else ["advant."]
    rows = list(_token_rows(tokens))
    title = f"tokens of line {tokens.line.index + 1}: {len(rows)}"
    if len(rows) > _MAX_TOKENS:
        title += f", the first {_MAX_TOKENS} of them"
    title += f"   {tokens.line.outcome.kind}"
    title += "" if tokens.reward is None else f"  reward {number(tokens.reward)}"
    return Overlay(title, (names, rows[:_MAX_TOKENS]))


def _token_rows(tokens: Tokens) -> Iterator[list[Text]]:
    trajectory, advantage = tokens.trajectory, tokens.advantage
    mine = (span for span in spans(trajectory) if span.line_index == tokens.line.index)
    for span in mine:
        style = SAMPLED if span.is_sampled else INJECTED
        for at in range(span.start, span.stop):
            text = "" if tokens.texts is None else repr(tokens.texts[at])
            cells = [
                styled(str(at), DIM),
                _cut(text, style),
                Text(str(trajectory.completion_ids[at])),
                styled("1" if trajectory.loss_mask[at] else "0", style),
                _number(trajectory.logprobs[at] if span.is_sampled else None),
            ]
            if tokens.trainer_logprobs is not None:
                cells.append(_number(tokens.trainer_logprobs[at] if span.is_sampled else None))
            if advantage is not None:
                cells.append(_number(advantage if span.is_sampled else None))
            yield cells


def _cut(text: str, style: str) -> Text:
    cell = styled(clipped(text, 100), style)
    cell.truncate(_TOKEN, overflow="ellipsis")
    return cell


def _number(value: float | None) -> Text:
    return Text("" if value is None else number(value), justify="right")


def details_overlay(walk: Walk, notes: Sequence[str]) -> Overlay:
    """Statement, verdict, submission and terms in full."""
    text = Text()
    for name, value in _details(walk, notes):
        text.append(f"{name}\n", DIM)
        text.append(cleaned(value) + "\n\n")
    return Overlay(f"about {clipped(walk.item.id, 40)}", text)


def _details(walk: Walk, notes: Sequence[str]) -> Iterator[tuple[str, str]]:
    scored = walk.item.ledger.scored
    trajectory, verdict = scored.trajectory, scored.verdict
    yield "problem " + clipped(scored.problem.id, 60), scored.problem.statement
    yield "submitted", trajectory.submission or "nothing"
    if verdict is not None:
        how = f"{judged(scored)} by {verdict.method or 'no method'} {verdict.evidence}".rstrip()
        yield "verdict", f"{how}\n{verdict.grader_error or ''}".rstrip()
    else:
        yield "verdict", judged(scored)
    terms = [f"{name} {number(value)}" for name, value in scored.reward.terms.items()]
    outcome = f"outcome {number(scored.reward.outcome_reward)}"
    yield "reward", "\n".join([f"total {number(scored.reward.total)}", outcome, *terms])
    share = f"{walk.item.ledger.share:.1%} of the gradient of its group"
    yield "group", f"{share}: {', '.join(walk.item.siblings)}"
    if (left := trajectory.branch) is not None:
        whom = f"sibling {left.sibling_index} ({walk.item.left or 'not in this file'})"
        yield "branch", f"leaves {whom} after line {left.num_lines}"
    yield "ended", f"{trajectory.stop_reason}, policy version {trajectory.policy_version}"
    if walk.worth is not None and walk.worth.scored is not None:
        branch = walk.worth.scored
        submission = branch.trajectory.submission or "nothing"
        yield "this branch", f"{judged(branch)} {number(walk.worth.total)}: {submission}"
    if notes:
        yield "notes", "\n".join(notes)


def help_overlay() -> Overlay:
    """It fits a screen of 24 rows."""
    entries = (*((key.label, key.meaning) for key in KEYS), *MARKS)
    rows = (Text.assemble((f"{name:<20}", KEY), meaning) for name, meaning in entries)
    return Overlay("keys", Text("\n").join(rows))
