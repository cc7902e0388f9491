"""`repl-rl rollout`: one trajectory in the open, and whether its parts fit and add up.

    Plan -> policy -> one rollout, shown as it grows -> Subject -> [Finding]

The checks are pure; those that hold of stored trajectories as well are those of `training.audit`.
Knows tokens, limits and rewards. Does not know how a trajectory is sampled.
"""

from __future__ import annotations

import math
import shutil
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from repl_rl.commands import options as shared
from repl_rl.commands.attempts import PROBLEM, find_attempt, open_policy, run_shown
from repl_rl.config.sections import SamplingConfig
from repl_rl.errors import ConfigError
from repl_rl.records import Finding, Origin, Scored, Trajectory, runs_on
from repl_rl.rollout.plan import Plan
from repl_rl.runs.trajectory_file import append, check_appendable
from repl_rl.tasks.base import make_prompt
from repl_rl.training.audit import Counts, Witness, agree, mask_disagreements, misread
from repl_rl.transcript.encoding import Encoding, prompt_ids
from repl_rl.transcript.format import Prompt, Span, next_number, span_mask, spans
from repl_rl.transcript.tokens import Codec
from repl_rl.viewer.replay.scene import token_texts
from repl_rl.viewer.show.display import Screen
from repl_rl.viewer.show.rollout_view import legend_of_tokens, result_rows, token_rows, token_table

if TYPE_CHECKING:
    from repl_rl.models.loading import LoadedModel


@click.command()
@shared.with_options(
    shared.TASK,
    PROBLEM,
    shared.MODEL,
    shared.ENGINE,
    shared.SEED,
    shared.FILES,
    shared.OVERRIDES,
)
@click.option("--tokens", is_flag=True, help="Print id, mask and log-probabilities of each token.")
@click.option("--output", type=Path, metavar="FILE", help="Append the trajectory to this .jsonl.")
def rollout(problem: str | None, tokens: bool, output: Path | None, **options: Any) -> None:
    """Sample one trajectory and check it.

    The command shows the lines as they are sampled, then the verdict, the rewards and the tokens.
    It checks mask, tokens, log-probabilities, limits and rewards. The exit code is 1 if a check
    fails.
    """
    model = options["model"]
    plan = shared.plan_of(options) if model is None else shared.plan_of_run(Path(model), options)
    if output is not None:
        check_appendable(output)
    shared.load_libraries(plan)
    with Screen() as screen:
        subject, origin = _roll_out(plan, problem, screen)
    try:
        _show(subject, Screen(), is_table=tokens)
        shared.report(findings(subject))
    finally:
        if output is not None:  # its failure matters more than that of a check
            _add(output, subject.scored, origin)


def _show(subject: RolloutSubject, screen: Screen, *, is_table: bool) -> None:
    trajectory, decode = subject.trajectory, subject.codec.decode
    texts = token_texts(trajectory, decode) or [decode([i]) for i in trajectory.completion_ids]
    screen.say("")
    for row in result_rows(subject.scored):
        screen.say(row)
    screen.say("")
    if is_table:
        rows = token_table(trajectory, texts, subject.scores.shifted)
    else:
        screen.say(legend_of_tokens())
        rows = token_rows(trajectory, texts, width=shutil.get_terminal_size().columns)
    for row in rows:
        screen.say(row)
    screen.say("")


def _add(path: Path, scored: Scored, origin: Origin) -> None:
    """Store it there, and say so. Raises ConfigError."""
    try:
        append(path, [scored], origin=origin)
    except OSError as error:
        reason = f"cannot write to {str(path)!r}: {error.strerror}; it is not kept"
        raise ConfigError(reason) from None
    click.echo(f"kept: {path}")


def _roll_out(plan: Plan, problem_id: str | None, screen: Screen) -> tuple[RolloutSubject, Origin]:
    """One rollout of the plan's policy, and where it comes from; raises as `train`."""
    attempt = find_attempt(plan, problem_id, screen)
    witness, counts = Witness(), Counts()
    with open_policy(plan, screen, watch=witness.watch) as (loaded, runtime):
        screen.say(f"problem {attempt.problem.id}, seed {attempt.seed}\n")
        scored = run_shown(runtime, attempt, loaded, screen)
        trajectory, fmt = scored.trajectory, plan.format(loaded.chat_template)
        counts.take_witnessed(trajectory, witness)
        subject = RolloutSubject(
            scored=scored,
            prompt=make_prompt(plan.task, scored.problem, fmt),
            encoding=Encoding(fmt, loaded.codec),
            sampling=plan.sampling,
            samples_lines=plan.samples_lines,
            context_tokens=runtime.context_tokens,
            scores=score(loaded, trajectory, temperature=plan.sampling.temperature),
            is_exact=loaded.precision.is_exact,
            num_drifted=counts.drifted,
        )
        return subject, runtime.origin


# P prompt tokens, T completion tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """Log-probabilities of a completion by one forward over prompt and completion, nats."""

    shifted: tuple[float, ...]  # [T]
    """Token t by the logits at P+t-1, those of the token before it: what an update reads."""
    unshifted: tuple[float, ...]  # [T]
    """Token t by the logits at P+t, its own."""


def score(loaded: LoadedModel, trajectory: Trajectory, *, temperature: float) -> Scores:
    """Ask a transformers model once."""
    from repl_rl.models import loading as models  # torch: seconds
    from repl_rl.models import policy

    prompt, completion = trajectory.prompt_ids, trajectory.completion_ids
    logits: list[Any] = []
    hook = loaded.model.register_forward_hook(lambda _, __, output: logits.append(output.logits[0]))
    try:
        shifted = models.logprobs(
            loaded, [*prompt, *completion], len(prompt), temperature=temperature
        )
    finally:
        hook.remove()
    own = (logits[0][len(prompt) :].float() / policy.divisor(temperature)).log_softmax(-1)
    unshifted = own[list(range(len(completion))), list(completion)].tolist()
    return Scores(shifted=tuple(shifted), unshifted=tuple(unshifted))


@dataclass(frozen=True, kw_only=True)
class RolloutSubject:
    """A trajectory, and what it is checked against."""

    scored: Scored
    prompt: Prompt
    encoding: Encoding
    sampling: SamplingConfig
    samples_lines: bool
    """True where `Plan.samples_lines` is."""
    context_tokens: int
    """The most tokens that the sampler allows, prompt included."""
    scores: Scores
    is_exact: bool
    """True where `Precision.is_exact` is."""
    num_drifted: int
    """Sampled tokens that the engine did not sample there; see `audit.Witness`."""

    @property
    def trajectory(self) -> Trajectory:
        return self.scored.trajectory

    def ids(self, span: Span) -> tuple[int, ...]:
        return self.trajectory.completion_ids[span.start : span.stop]

    def injected(self, span: Span) -> list[int]:
        """Return the ids that an injected span should hold."""
        if span.line_index < 0:
            return self.encoding.ids_before_lines(self.prompt, self.trajectory)
        return self.expected_ids[span.line_index]

    @property
    def codec(self) -> Codec:
        return self.encoding.codec

    @cached_property
    def gaps(self) -> dict[int, float]:
        """|sampler - trainer| at each sampled token, by position in the completion."""
        stored, fresh = self.trajectory.logprobs, self.scores.shifted
        return {t: abs(fresh[t] - stored[t]) for t in self.sampled}

    @cached_property
    def sampled(self) -> list[int]:
        """Positions of sampled tokens, according to the lines."""
        return [t for t, is_sampled in enumerate(span_mask(self.trajectory)) if is_sampled]

    @cached_property
    def expected_ids(self) -> list[list[int]]:
        """Ids that stand after each line, of its observation and the next prompt. [L]"""
        number, all_ids = self.prompt.next_number, []
        for line in self.trajectory.lines:
            kind, text = line.outcome.kind, line.outcome.observation
            rendered = self.encoding.format.render_observation(text, kind, number=number)
            ids = self.trajectory.completion_ids[: line.stop]
            all_ids.append(self.encoding.injected_ids(rendered, after=ids))
            number = next_number(number, kind)
        return all_ids


def findings(subject: RolloutSubject) -> list[Finding]:
    """Each check, and whether it passed. A user's own loop has fewer checks: its lines differ.

    Positions in them count from the first token of the completion, lines from 1.
    """
    checks = [_mask, _shift, _prompt, _lines, _drift, _gap]
    if subject.samples_lines:
        checks += [_observations, _stop_tokens, _run_on, _budgets]
    return [check(subject) for check in (*checks, _terms)]


def _finding(name: str, text: str, faults: Sequence[str]) -> Finding:
    """`text` where there is no fault, else the first fault and how many there are."""
    if not faults:
        return Finding(name=name, text=text)
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return Finding(name=name, text=faults[0] + more, passed=False)


# Tokens


def _mask(subject: RolloutSubject) -> Finding:
    mask, num_sampled = subject.trajectory.loss_mask, len(subject.sampled)
    faults = [
        f"position {t}: {_word(mask[t])} by the mask, {_word(not mask[t])} by the lines"
        for t in mask_disagreements(subject.trajectory)
    ]
    text = f"{num_sampled} sampled, {len(mask) - num_sampled} injected, in agreement with the lines"
    return _finding("mask", text, faults)


def _word(is_sampled: bool) -> str:
    return "sampled" if is_sampled else "injected"


def _shift(subject: RolloutSubject) -> Finding:
    """The mask marks tokens; the logits that score a token stand one position before it."""
    stored, unshifted = subject.trajectory.logprobs, subject.scores.unshifted
    here = statistics.fmean(subject.gaps.values())
    there = statistics.fmean(abs(unshifted[t] - stored[t]) for t in subject.sampled)
    text = f"token t by logits P+t-1: {here:.1e} nats off; by P+t: {there:.1e}"
    return _finding("shift by one", text, [] if here < there else [text])


def _prompt(subject: RolloutSubject) -> Finding:
    trajectory, encoded = subject.trajectory, prompt_ids(subject.prompt, subject.codec)
    faults = [
        f"position {at} holds id {was}, its text is encoded as {now}"
        for at, (was, now) in enumerate(zip(trajectory.prompt_ids, encoded, strict=False))
        if was != now
    ]
    if len(trajectory.prompt_ids) != len(encoded):
        faults.append(f"{len(trajectory.prompt_ids)} ids, its text is encoded as {len(encoded)}")
    if trajectory.prompt_text != subject.prompt.text:
        faults.append("its text is not the task's prompt")
    return _finding("prompt", f"{len(encoded)} ids encode its text", faults)


def _lines(subject: RolloutSubject) -> Finding:
    fmt = subject.encoding.format if subject.samples_lines else None
    faults = [
        f"line {span.line_index + 1}: its ids decode to another text"
        for span in misread(subject.trajectory, subject.codec, fmt)
        if span.is_sampled
    ]
    text = f"{len(subject.trajectory.lines)} decode to their text"
    return _finding("lines", text, faults)


def _drift(subject: RolloutSubject) -> Finding:
    fault = f"{subject.num_drifted} sampled tokens are not those that the engine returned"
    text = f"{len(subject.sampled)} as the engine returned them, none tokenised again"
    return _finding("sampled ids", text, [fault] if subject.num_drifted else [])


def _observations(subject: RolloutSubject) -> Finding:
    observations = [span for span in spans(subject.trajectory) if not span.is_sampled]
    faults = [
        f"after line {span.line_index + 1}: ids do not encode the output that was shown"
        for span in observations
        if list(subject.ids(span)) != subject.injected(span)
    ]
    text = f"{len(observations)} encode the output that was shown"
    return _finding("observations", text, faults)


def _gap(subject: RolloutSubject) -> Finding:
    gaps = subject.gaps
    # A NaN is the largest: nothing compares with it.
    at = max(gaps, key=lambda t: math.inf if math.isnan(gaps[t]) else gaps[t])
    mean = statistics.fmean(gaps.values())
    token = subject.codec.decode([subject.trajectory.completion_ids[at]])
    text = f"largest {gaps[at]:.1e} nats, at position {at} {token!r}; mean {mean:.1e}"
    is_near = agree(list(gaps.values()), is_exact=subject.is_exact)
    return _finding("gap", text, [] if is_near else [text])


def _stop_tokens(subject: RolloutSubject) -> Finding:
    codec, lines = subject.codec, subject.trajectory.lines
    ends = codec.newline_ids | codec.eos_ids
    faults = []
    for line in lines:
        *inner, end = subject.trajectory.completion_ids[line.start : line.stop]
        number = line.index + 1
        if not ends.isdisjoint(inner):
            faults.append(f"line {number} continues after an id that ends it")
        if line.index < len(lines) - 1 and end not in subject.encoding.line_ends:
            faults.append(f"line {number} does not end in a newline id")
    return _finding("stop tokens", f"each of {len(lines)} lines ends at its first", faults)


def _run_on(subject: RolloutSubject) -> Finding:
    lines, rule = subject.trajectory.lines, subject.sampling.run_on
    numbers = [line.index + 1 for line in lines if runs_on(line.source)]
    faults = [f"line {number} has some, and sampling.run_on = {rule!r}" for number in numbers]
    text = f"in {len(numbers)} of {len(lines)} lines; sampling.run_on = {rule!r}"
    return _finding("text after newlines", text, faults if rule == "forbid" else [])


def _budgets(subject: RolloutSubject) -> Finding:
    trajectory, limits, codec = subject.trajectory, subject.sampling, subject.codec
    lines, num_tokens = trajectory.lines, len(trajectory.completion_ids)
    used = {
        "tokens": (num_tokens, limits.max_tokens),
        "lines": (len(lines), limits.max_lines),
        "with the prompt": (len(trajectory.prompt_ids) + num_tokens, subject.context_tokens),
        "longest line": (max(line.stop - line.start for line in lines), limits.max_line_tokens),
        "longest output": (
            max(len(codec.encode(line.outcome.observation)) for line in lines),
            limits.max_observation_tokens,
        ),
    }
    texts = {key: f"{key} {count:,} of {most:,}" for key, (count, most) in used.items()}
    faults = [texts[key] for key, (count, most) in used.items() if count > most]
    return _finding("budgets", ", ".join(texts.values()), faults)


def _terms(subject: RolloutSubject) -> Finding:
    reward = subject.scored.reward
    outcome, lines = reward.outcome_reward or 0.0, math.fsum(reward.line_rewards)
    terms = math.fsum(reward.terms.values())
    text = f"outcome {outcome:+.3f} and lines {lines:+.3f}"
    if not reward.terms:
        return Finding(name="reward terms", text=f"{text}; the reward names no terms")
    is_same = math.isclose(terms, outcome + lines, abs_tol=1e-6)
    fault = f"terms add up to {terms:+.3f}, {text} to {outcome + lines:+.3f}"
    return _finding(
        "reward terms", f"{len(reward.terms)} add up to {text}", [] if is_same else [fault]
    )
