"""Answers of the interpreter that a policy can learn to foresee, among the tokens it was shown.

    Scored -> spans of answers, a line each -> mask [T]

An answer is the output of a line of the trajectory's own, up to where it was cut. Prompts, what a
chat template writes, and what may differ next time are no part of it. Knows tokens and text. Does
not know models or losses.
"""

from __future__ import annotations

import bisect
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from repl_rl.records import LineOutcome, Scored
from repl_rl.rollout.prefixes import kernel_sources, volatile_lines
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import Span, spans
from repl_sandbox.render import OMISSION


@dataclass(frozen=True, slots=True)
class Answers:
    """Finds the answers in trajectories of one format, in kernels that had run `setup`.

    answers = Answers(Encoding(fmt, codec), setup=env.setup)
    answers.mask(scored)
    """

    encoding: Encoding
    setup: Sequence[str]

    def mask(self, scored: Scored) -> list[bool]:
        """[T]: True at the tokens of answers."""
        mask = [False] * len(scored.trajectory.completion_ids)
        for span in self.spans(scored):
            mask[span.start : span.stop] = [True] * (span.stop - span.start)
        return mask

    def surprises(self, scored: Scored, logprobs_T: Sequence[float]) -> dict[int, float]:
        """Nats a token of the answer to each line that has one, by the line's index."""
        return {
            span.line_index: -statistics.fmean(logprobs_T[span.start : span.stop])
            for span in self.spans(scored)
        }

    def spans(self, scored: Scored) -> Iterator[Span]:
        """Tokens of each answer that has some, in order.

        None behind a line that names a clock or a draw, nor where lines are copies.
        """
        trajectory = scored.trajectory
        setup = (*self.setup, *scored.problem.setup)
        reasons_L = volatile_lines(kernel_sources(trajectory.lines), setup=setup)
        for span in spans(trajectory):
            at = span.line_index
            if span.is_sampled or at < trajectory.num_copied_lines or reasons_L[at] is not None:
                continue
            ids = trajectory.completion_ids[span.start : span.stop]
            start, stop = self._within(ids, foreseen(trajectory.lines[at].outcome))
            if start < stop:
                yield span._replace(start=span.start + start, stop=span.start + stop)

    def _within(self, ids: Sequence[int], answer: str) -> tuple[int, int]:
        """(start, stop) of the tokens that spell nothing but `answer`; none where they do not."""
        decode, text = self.encoding.codec.decode, self.encoding.codec.decode(ids)
        begin = len(self._closing(text))
        if not text.startswith(answer, begin):
            return 0, 0
        sizes = range(len(ids) + 1)
        start = bisect.bisect_left(sizes, begin, key=lambda size: len(decode(ids[:size])))
        end = begin + len(answer)
        return start, bisect.bisect_right(sizes, end, key=lambda size: len(decode(ids[:size]))) - 1

    def _closing(self, text: str) -> str:
        """Return what a template writes before the answer; a turn that is over is not ended."""
        closing, turn_end = self.encoding.format.closing, self.encoding.turn_end
        if turn_end is None or text.startswith(closing):
            return closing
        return closing.removeprefix(self.encoding.codec.decode([turn_end]))


def foreseen(outcome: LineOutcome) -> str:
    """The observation, up to the mark of what was cut out of it."""
    if not outcome.is_truncated:
        return outcome.observation
    mark = OMISSION.search(outcome.observation)
    return outcome.observation if mark is None else outcome.observation[: mark.start()]
