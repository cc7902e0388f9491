"""Checks of one trajectory: do its parts fit together, and does it add up?

    Subject -> Finding, Finding, ...

Pure. Knows tokens, limits and rewards. Does not know how the trajectory was sampled.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence

from repl_rl.commands.rollout_subject import Subject
from repl_rl.config.sections import RewardConfig, SamplingConfig
from repl_rl.lines import runs_on
from repl_rl.training.audit import LARGEST_GAP, MEAN_GAP
from repl_rl.transcript.encoding import prompt_ids
from repl_rl.transcript.format import source_of, span_mask, spans, text_of
from repl_rl.types import Finding, StopReason


def findings(subject: Subject) -> list[Finding]:
    """Each check, and whether it passed. A user's own loop has fewer checks: its lines differ.

    Positions in them count from the first token of the completion, lines from 1.
    """
    checks = [_mask, _shift, _prompt, _lines, _drift, _gap]
    if subject.sampling.sampler == SamplingConfig().sampler:
        checks += [_observations, _stop_tokens, _run_on, _budgets, _line_budgets, _stop_reason]
    return [check(subject) for check in (*checks, _terms, _charges)]


def _finding(name: str, text: str, faults: Sequence[str]) -> Finding:
    """`text` where there is no fault, else the first fault and how many there are."""
    if not faults:
        return Finding(name=name, text=text)
    more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
    return Finding(name=name, text=faults[0] + more, passed=False)


# Tokens


def _mask(subject: Subject) -> Finding:
    trajectory = subject.trajectory
    expected = span_mask(trajectory)
    pairs = enumerate(zip(expected, trajectory.loss_mask, strict=True))
    faults = [
        f"position {t}: {_word(by_mask)} by the mask, {_word(by_lines)} by the lines"
        for t, (by_lines, by_mask) in pairs
        if by_lines != by_mask
    ]
    num_sampled = sum(expected)
    text = f"{num_sampled} sampled, {len(expected) - num_sampled} injected, as the lines have it"
    return _finding("mask", text, faults)


def _word(is_sampled: bool) -> str:
    return "sampled" if is_sampled else "injected"


def _shift(subject: Subject) -> Finding:
    """The mask marks tokens; the logits that score a token stand one position before it."""
    stored, unshifted = subject.trajectory.logprobs, subject.scores.unshifted
    here = statistics.fmean(subject.gaps.values())
    there = statistics.fmean(abs(unshifted[t] - stored[t]) for t in subject.sampled)
    text = f"token t by logits P+t-1: {here:.1e} nats off; by P+t: {there:.1e}"
    return _finding("shift by one", text, [] if here < there else [text])


def _prompt(subject: Subject) -> Finding:
    trajectory, encoded = subject.trajectory, prompt_ids(subject.prompt, subject.codec)
    faults = [
        f"position {at} holds id {was}, its text is encoded as {now}"
        for at, (was, now) in enumerate(zip(trajectory.prompt_ids, encoded, strict=False))
        if was != now
    ]
    if len(trajectory.prompt_ids) != len(encoded):
        faults.append(f"{len(trajectory.prompt_ids)} ids, its text is encoded as {len(encoded)}")
    if trajectory.prompt_text != subject.prompt.text:
        faults.append("its text is not the one that the task makes")
    return _finding("prompt", f"{len(encoded)} ids are the encoding of its text", faults)


def _lines(subject: Subject) -> Finding:
    faults, num_others = [], 0
    for span in (span for span in spans(subject.trajectory) if span.is_sampled):
        source, ids = source_of(subject.trajectory, span), subject.ids(span)
        if text_of(source, ids, subject.codec.decode) is None:
            faults.append(f"line {span.line_index + 1}: its ids read otherwise than its text")
        written = ids[:-1] if ids[-1] == subject.encoding.turn_end else ids
        num_others += subject.codec.encode(subject.codec.decode(written)) != list(written)
    text = f"{len(subject.trajectory.lines)} are what their ids read"
    if num_others:
        text += f"; {num_others} would have other ids if encoded anew"
    return _finding("lines", text, faults)


def _drift(subject: Subject) -> Finding:
    fault = f"{subject.num_drifted} sampled tokens are not what the engine said at their place"
    text = f"{len(subject.sampled)} as the engine said them, none tokenised again"
    return _finding("sampled ids", text, [fault] if subject.num_drifted else [])


def _observations(subject: Subject) -> Finding:
    found = [span for span in spans(subject.trajectory) if not span.is_sampled]
    faults = [
        f"after line {span.line_index + 1}: ids are not the encoding of what was shown"
        for span in found
        if list(subject.ids(span)) != subject.injected(span)
    ]
    return _finding("observations", f"{len(found)} are the encoding of what was shown", faults)


def _gap(subject: Subject) -> Finding:
    gaps = subject.gaps
    # A NaN is the largest: nothing compares with it.
    at = max(gaps, key=lambda t: math.inf if math.isnan(gaps[t]) else gaps[t])
    mean = statistics.fmean(gaps.values())
    token = subject.codec.decode([subject.trajectory.completion_ids[at]])
    text = f"largest {gaps[at]:.1e} nats, at position {at} {token!r}; mean {mean:.1e}"
    is_near = gaps[at] <= LARGEST_GAP if subject.is_exact else mean <= MEAN_GAP
    return _finding("gap", text, [] if is_near else [text])


def _stop_tokens(subject: Subject) -> Finding:
    codec, lines = subject.codec, subject.trajectory.lines
    ends = codec.newline_ids | codec.eos_ids
    faults, last = [], ""
    for line in lines:
        *inner, end = subject.trajectory.completion_ids[line.start : line.stop]
        number = line.index + 1
        if not ends.isdisjoint(inner):
            faults.append(f"line {number} goes on after an id that ends it")
        if line.index < len(lines) - 1 and end not in subject.encoding.line_ends:
            faults.append(f"line {number} does not end in a newline id")
        last = "a newline" if end in codec.newline_ids else "an end of sequence"
        last = "an end of turn" if end == subject.encoding.turn_end else last
        last = last if end in ends else "none"
    text = f"each of {len(lines)} lines ends at its first; the last has {last}"
    return _finding("stop tokens", text, faults)


def _run_on(subject: Subject) -> Finding:
    lines, rule = subject.trajectory.lines, subject.sampling.run_on
    numbers = [line.index + 1 for line in lines if runs_on(line.source)]
    faults = [f"line {number} has some, and sampling.run_on = {rule!r}" for number in numbers]
    text = f"in {len(numbers)} of {len(lines)} lines; sampling.run_on = {rule!r}"
    return _finding("text after newlines", text, faults if rule == "forbid" else [])


# Budgets


def _budgets(subject: Subject) -> Finding:
    trajectory, limits = subject.trajectory, subject.sampling
    num_tokens = len(trajectory.completion_ids)
    in_context = len(trajectory.prompt_ids) + num_tokens
    return _within(
        "budgets",
        {
            "tokens": (num_tokens, limits.max_tokens),
            "lines": (len(trajectory.lines), limits.max_lines),
            "with the prompt": (in_context, subject.context_tokens),
        },
    )


def _line_budgets(subject: Subject) -> Finding:
    limits, lines = subject.sampling, subject.trajectory.lines
    outputs = (len(subject.codec.encode(line.outcome.observation)) for line in lines)
    longest = max(line.stop - line.start for line in lines)
    return _within(
        "line budgets",
        {
            "longest line": (longest, limits.max_line_tokens),
            "longest output": (max(outputs), limits.max_observation_tokens),
        },
    )


def _within(name: str, used: Mapping[str, tuple[int, int]]) -> Finding:
    counts = [f"{key} {count:,} of {most:,}" for key, (count, most) in used.items()]
    pairs = zip(counts, used.values(), strict=True)
    return _finding(name, ", ".join(counts), [text for text, (n, most) in pairs if n > most])


def _stop_reason(subject: Subject) -> Finding:
    expected, found = possible_stops(subject), subject.trajectory.stop_reason
    fault = f"{found}, the numbers say {' or '.join(sorted(expected))}"
    faults = [] if found in expected else [fault]
    return _finding("stop reason", f"{found}, as the numbers say", faults)


def possible_stops(subject: Subject) -> set[StopReason]:
    """The reasons to stop that its numbers allow. They do not show the clock."""
    trajectory = subject.trajectory
    last = trajectory.lines[-1]
    end, kind = trajectory.completion_ids[last.stop - 1], last.outcome.kind
    if trajectory.submission is not None:
        return {StopReason.SUBMITTED}
    if end in subject.codec.eos_ids - subject.encoding.line_ends:
        return {StopReason.EOS}
    if (ends := kind.traits.ends) is not None:
        return {ends}
    if end not in subject.encoding.line_ends:
        room, full = _room(subject, last.start)
        return {full if last.stop - last.start == room else StopReason.MAX_LINE_TOKENS}
    if len(trajectory.lines) >= subject.sampling.max_lines:
        return {StopReason.MAX_LINES}
    room, full = _room(subject, last.stop)
    is_shown = len(trajectory.completion_ids) > last.stop
    is_full = not is_shown and len(subject.shown[-1]) >= room
    return {StopReason.TIME_LIMIT, full} if is_full else {StopReason.TIME_LIMIT}


def _room(subject: Subject, num_completion: int) -> tuple[int, StopReason]:
    """Tokens that fit after so many, and the reason to stop when they are used up."""
    budget = subject.sampling.max_tokens - num_completion
    context = subject.context_tokens - len(subject.trajectory.prompt_ids) - num_completion
    if context < budget:
        return context, StopReason.CONTEXT_FULL
    return budget, StopReason.MAX_TOKENS


# Rewards


def _terms(subject: Subject) -> Finding:
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


def _charges(subject: Subject) -> Finding:
    """For the default reward alone; a user's own may charge as it likes."""
    reward, limits = subject.scored.reward, subject.config.reward
    if limits.function != RewardConfig().function:
        return Finding(name="line charges", text=f"those of {limits.function}, under no cap")
    charge = math.fsum(reward.line_rewards) - reward.terms.get("potential", 0.0)
    text = f"{charge:+.3f}, the cap is {-limits.max_line_charge:+.3f}"
    is_within = charge >= -limits.max_line_charge - 1e-9
    return _finding("line charges", text, [] if is_within else [text])
