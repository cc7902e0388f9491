r"""Trajectories that scripts write, in the tokens of a model: what it would see, and should say.

    Script -> [line -> ids -> Episode -> what the kernel answers]* -> Trajectory

A sampler like any other, without an engine. Prompt, lines and answers have the ids that they have
where the model samples. Knows formats and kernels. Does not know tasks, models or training.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from repl_rl.config.sections import SamplingConfig
from repl_rl.engines.base import SampledLine, line_end
from repl_rl.errors import ConfigError
from repl_rl.records import Attempt, Problem, StopReason, Trajectory
from repl_rl.rollout.episode import Episode
from repl_rl.tasks.base import Script
from repl_rl.transcript.encoding import Encoding
from repl_rl.transcript.format import Prompt, line_of
from repl_sandbox.types import Kernel


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLine:
    """A line of a transcript that somebody wrote by hand."""

    source: str
    """Without newline."""
    output: str
    """Output that is said to have come back. Ends in a newline unless empty."""
    place: str
    """`FILE:LINE`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A transcript that somebody wrote by hand; one without any output says nothing of outputs."""

    problem: Problem
    lines: tuple[WrittenLine, ...]

    @property
    def has_outputs(self) -> bool:
        return any(line.output for line in self.lines)


def fixed_script(sources: Iterable[str]) -> Script:
    """The script of these lines, whatever is answered."""
    for source in sources:  # noqa: UP028  # a list has no `send`
        yield source


@dataclass(frozen=True, slots=True)
class ScriptSampler:
    """Makes the trajectory of the script that `write` has for an attempt.

    One that ends without a submission has the stop reason EOS, though no token says so. A line that
    is longer than `limits` allow is cut, as a policy's is. Raises ConfigError for a line that holds
    a newline.
    """

    write: Callable[[Attempt], Script]
    encoding: Encoding
    limits: SamplingConfig
    context_tokens: int = field(kw_only=True)

    async def sample(self, attempt: Attempt, prompt: Prompt, kernel: Kernel) -> Trajectory:
        """Run the script's lines: see `TrajectorySampler.sample`."""
        episode = Episode.begin(
            attempt, prompt, kernel, self.encoding, self.limits, self.context_tokens
        )
        script = self.write(attempt)
        try:
            source = next(script)
            while episode.stop is None:
                step = await episode.take_line(self._line(source, episode.room))
                source = script.send(step.outcome.observation)
        except StopIteration:
            if episode.stop is None:
                episode.end(StopReason.EOS)
        return episode.trajectory()

    def _line(self, source: str, room: int) -> SampledLine:
        """Sample a line as a policy that is sure of it, as far as there is room."""
        if "\n" in source:
            raise ConfigError(f"a scripted line goes on after a newline: {source!r}; yield two")
        codec = self.encoding.codec
        ids = tuple(self.encoding.line_ids(line_of(source))[:room])
        end = line_end(ids[-1], newline_ids=codec.newline_ids, eos_ids=codec.eos_ids)
        return SampledLine(ids=ids, logprobs=(0.0,) * len(ids), end=end, policy_version=0)
