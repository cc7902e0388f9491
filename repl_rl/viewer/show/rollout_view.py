"""One trajectory for a terminal of any width: as it grows, as tokens, and what it was worth.

    TrajectoryBuilder, line by line -> rows;  token texts -> rows;  Scored -> rows

What a policy or a kernel wrote is cleaned or escaped here, and never read as markup. Does
not know how tokens are made, nor how they are checked.
"""

from __future__ import annotations

import importlib
import io
import math
import shutil
import signal
import sys
from collections.abc import Callable, Iterator, Sequence

from rich.text import Text

from repl_rl.base.terminal import shorten
from repl_rl.records import Line, Scored, Tone, Trajectory, Verdict
from repl_rl.rollout.builder import TrajectoryBuilder
from repl_rl.transcript.format import spans
from repl_rl.transcript.tokens import Codec
from repl_rl.viewer.show.display import Screen
from repl_rl.viewer.show.marked import ERROR, INJECTED, PROMPT, SAMPLED, kind_words
from repl_sandbox.render import clean

Say = Callable[[Text], None]

_MAX_CHARS = 240
"""Most characters of a submission or of evidence."""
_TEXT_WIDTH = 22


class LineStream:
    """Shows a rollout as it grows; `show_line` is for `LineSampler.on_line`."""

    def __init__(self, codec: Codec, say: Say) -> None:
        self._codec = codec
        self._say = say

    def show_line(self, built: TrajectoryBuilder) -> None:
        """Show the last line and the interpreter's answer; the prompt comes before line 1."""
        line = built.lines[-1]
        start = built.lines[-2].stop if len(built.lines) > 1 else -built.num_prompt
        ids = built.ids[built.num_prompt + start :][: line.start - start]
        before = self._codec.decode(ids, is_first=line.index == 0)
        above, _, opening = before.rpartition("\n")
        if line.index == 0:
            self._say(Text(clean(above), PROMPT))
        self._say(
            Text.assemble((clean(opening), INJECTED if line.index else PROMPT), *_line_pieces(line))
        )
        if line.outcome.observation:
            self._say(Text(clean(line.outcome.observation).rstrip("\n"), INJECTED))


def _line_pieces(line: Line) -> Iterator[tuple[str, str]]:
    kind = line.outcome.kind
    yield clean(line.source).rstrip("\n"), ERROR if kind.traits.is_error else SAMPLED
    if kind.traits.tone in (Tone.ERROR, Tone.REPEATED):
        yield f"   <- {kind}", "dim red"


# Tokens


def legend_of_tokens() -> Text:
    return Text("tokens: + sampled, . injected, | between two; a row starts with its position")


def token_rows(trajectory: Trajectory, texts: Sequence[str], *, width: int) -> Iterator[Text]:
    r"""The tokens of each line and observation, as many to a row as fit: `   12 + | 1|+|1|\n|`."""
    for span in spans(trajectory):
        style = SAMPLED if span.is_sampled else INJECTED
        mark, row = "+" if span.is_sampled else ".", Text()
        for at in range(span.start, span.stop):
            piece = visible(texts[at])
            if not row or len(row) + len(piece) + 1 > width:
                if row:
                    yield row
                row = Text(f"{at:5} {mark} ", "dim").append("|", "dim")
            row.append(piece, style).append("|", "dim")
        yield row


def visible(text: str) -> str:
    r"""A token's text on one row: what cannot be printed is written as Python escapes it."""
    return "".join(one if one.isprintable() else repr(one)[1:-1] for one in text)


def token_table(
    trajectory: Trajectory, texts: Sequence[str], trainer: Sequence[float]
) -> Iterator[Text]:
    """A row for each token of the completion, for 80 columns; log-probabilities in nats."""
    yield Text(f"{'at':>5}{'id':>8}  {'text':{_TEXT_WIDTH}}{'':9}", "bold").append(
        f"{'sampler':>10}{'trainer':>10}{'gap':>9}"
    )
    mask, sampler = trajectory.loss_mask, trajectory.logprobs
    for at, token in enumerate(trajectory.completion_ids):
        text = shorten(repr(texts[at]), _TEXT_WIDTH - 1)
        row = Text(f"{at:5}{token:8}  {text:{_TEXT_WIDTH}}", SAMPLED if mask[at] else INJECTED)
        if mask[at]:
            gap = abs(sampler[at] - trainer[at])
            row.append(f"{'sampled':9}{sampler[at]:10.4f}{trainer[at]:10.4f}{gap:9.1e}", "not bold")
        else:
            row.append(f"{'injected':9}{'':10}{trainer[at]:10.4f}")
        yield row


# Worth


def ending_rows(trajectory: Trajectory) -> Iterator[Text]:
    """Yield rows about the end of a trajectory and its submission."""
    yield Text(f"stopped      {trajectory.stop_reason}")
    if trajectory.submission is not None:
        yield Text(f"submission   {_inert(trajectory.submission)}")


def result_rows(scored: Scored) -> Iterator[Text]:
    """Yield rows about end, submission, verdict, and the reward line by line, term by term."""
    trajectory, reward = scored.trajectory, scored.reward
    yield from ending_rows(trajectory)
    yield Text(f"verdict      {_verdict(scored.verdict)}")
    outcome = "not scored" if reward.outcome_reward is None else f"{reward.outcome_reward:+.3f}"
    lines = math.fsum(reward.line_rewards)
    yield Text(f"reward       {reward.total:+.3f} = outcome {outcome}, lines {lines:+.3f}")
    for line, value in zip(trajectory.lines, reward.line_rewards, strict=True):
        if value:
            yield Text(f"  line {line.index + 1:<6}{value:+.3f}  {line.outcome.kind}")
    for name, value in reward.terms.items():
        yield Text(f"  term       {value:+.3f}  {_inert(name)}")


def _verdict(verdict: Verdict | None) -> str:
    if verdict is None:
        return kind_words(None)
    parts = [kind_words(verdict.kind)]
    if verdict.method:
        parts.append(f"by {_inert(verdict.method)}")
    parts += map(_inert, filter(None, (verdict.evidence, verdict.grader_error)))
    return ", ".join(parts)


def _inert(text: str) -> str:
    return shorten(visible(clean(text)), _MAX_CHARS)


class PlayerConsole:
    """Asks at a terminal with readline's editing and history; echoes the lines of a pipe."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self._is_terminal = sys.stdin.isatty() and sys.stdout.isatty()
        if isinstance(sys.stdin, io.TextIOWrapper):
            sys.stdin.reconfigure(errors="replace")
        if self._is_terminal:
            # Not imported earlier: on a pipe its import writes an escape sequence to stdout.
            readline = importlib.import_module("readline")
            # Pasted lines arrive one by one, like typed ones.
            readline.parse_and_bind("set enable-bracketed-paste off")

    def ask(self, prompt: str) -> str | None:
        """The next line, without newline; None at its end. KeyboardInterrupt calls it off."""
        # Inside an event loop an interrupt would otherwise wait for the end of the line.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            return self._typed(prompt) if self._is_terminal else self._read(prompt)
        finally:
            signal.signal(signal.SIGINT, before)

    def _typed(self, prompt: str) -> str | None:
        try:
            return input(f"{prompt} ")
        except EOFError:
            sys.stdout.write("\n")
            return None

    def _read(self, prompt: str) -> str | None:
        row = sys.stdin.readline()
        line = clean(row).removesuffix("\n")
        self.say(Text(f"{prompt} {line}".rstrip() if row else prompt))
        return row.removesuffix("\n") if row else None

    def say(self, text: Text) -> None:
        """Show rows that stay."""
        self._screen.say(text)

    def note(self, text: str) -> None:
        """Show a few words about the line above, dim, at the right edge."""
        width = shutil.get_terminal_size().columns
        self._screen.say(Text(text.rjust(width - 1), "dim"))
