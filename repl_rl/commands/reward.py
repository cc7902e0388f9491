"""`repl-rl reward COMMAND`: hold a reward to golden transcripts, explain it, try its constants.

    .repl -> misses, mutants;  .jsonl or .repl -> scored -> advantages -> [(where, Ledger)] by group

The advantages are those of the update itself. Knows words for the terminal. Does not know how a
reward is made.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import click
from rich.table import Table

from repl_rl.commands import options as shared
from repl_rl.config.resolve import refuse_foreign_code, user_settings
from repl_rl.credit.advantages import advantage_rows, load_credit
from repl_rl.credit.ledger import Ledger, ledgers, worths
from repl_rl.errors import ConfigError
from repl_rl.golden.suites import Suite, Suites
from repl_rl.golden.text import SUFFIX
from repl_rl.records import Scored
from repl_rl.rollout.plan import Plan
from repl_rl.rollout.prefixes import attempts_around, check_asked, why_not_again
from repl_rl.runs.folder import RunPart, part_of
from repl_rl.runs.trajectory_file import StoredTrajectory, places
from repl_rl.tasks.base import make_prompt
from repl_rl.viewer.replay.annotated import annotate
from repl_rl.viewer.replay.scene import config_of
from repl_rl.viewer.show.display import Screen, worth_table

MISSED = 1

Group = list[tuple[str, Ledger]]
"""Siblings: (file and number, ledger) of each."""


@click.group()
def reward() -> None:
    """Test a reward, explain it or mutate its constants."""


_options = shared.with_options(shared.FILES, shared.OVERRIDES)


@reward.command()
@click.argument("paths", nargs=-1, required=True, type=Path, metavar="FILE...")
@_options
def test(paths: tuple[Path, ...], files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Check a reward against golden transcripts.

    A folder stands for all *.repl files below it. The exit code is 1 if a transcript differs.
    docs/files.md describes the format.
    """
    suites = Suites.open(paths, files=files, overrides=overrides)
    found = [miss for suite in suites.suites for miss in suite.misses()]
    for miss in found:
        click.echo(f"{miss}\n")
    click.echo(suites.summary(len({(miss.path, miss.title) for miss in found})))
    sys.exit(MISSED if found else 0)


@reward.command()
@click.argument("paths", nargs=-1, required=True, type=Path, metavar="FILE...")
@click.option(
    "--skip", multiple=True, metavar="KEY", help="Leave out line, verdict.wrong, ...; repeatable."
)
@_options
def mutate(
    paths: tuple[Path, ...],
    skip: tuple[str, ...],
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
) -> None:
    """Find constants that could change unnoticed.

    The command changes each constant under [reward], and lists the changes, called mutants, that no
    golden transcript notices.

    A mutant flips the sign of a value, doubles it or sets it to zero. A zero becomes 0.1 and -0.1.
    The exit code is 1 if a mutant survives: an `unwritten` one changes a reward that no transcript
    states, an `untouched` one changes no reward. A mutant that the config refuses does not survive.
    If your own reward function does not read a constant, the command names it and makes no mutant.
    """
    suites = Suites.open(paths, files=files, overrides=overrides)
    if any(miss for suite in suites.suites for miss in suite.misses()):
        raise ConfigError(
            "these transcripts already differ; mend what `repl-rl reward test` shows first"
        )
    results = suites.mutate(skip=skip)
    survivors = [(mutant, result) for mutant, result in results if result.is_survivor]
    for mutant, result in survivors:
        click.echo(f"survived  {mutant.key:22}{mutant.change:18}{result}")
    counts = Counter(result for _, result in results)
    text = ", ".join(f"{count} {result}" for result, count in sorted(counts.items()))
    click.echo(f"{len(results)} mutants: {text}" if results else "0 mutants")
    for suite in suites.suites:
        if unread := ", ".join(suite.unread()):
            what = f"{suite.config.reward.function} reads no {unread}"
            none_left = "" if results else ", so nothing under [reward] can be varied"
            click.echo(f"{suite.file.path}: {what}{none_left}")
    sys.exit(MISSED if survivors else 0)


@reward.command()
@shared.run_argument()
@shared.PART
@click.option(
    "--id", "problem_id", metavar="ID", help="FILE:NUMBER, as shown, a problem id or a title."
)
@shared.count(3, "How many to show.")
@click.option(
    "--branches",
    type=click.IntRange(min=1),
    metavar="K",
    help="Measure what each line was worth, by K rollouts from each state.",
)
@click.option(
    "--model", type=Path, metavar="PATH", help="Policy of these rollouts [the run's last weights]."
)
@_options
def explain(
    path: Path,
    step: int | None,
    problem_id: str | None,
    count: int,
    branches: int | None,
    model: Path | None,
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
    *,
    held_out: bool,
) -> None:
    """Print each line's reward, advantage and share.

    The share is the line's part of the group's gradient: |advantage| summed over its tokens. The
    group with the largest gradient comes first. A group whose siblings all earned the same has no
    gradient.

    RUN is a run folder [the newest in runs/], a .jsonl file or a .repl file. Of a run, the last
    training step is explained. The transcripts of a .repl file count as siblings. Stored
    trajectories keep their stored rewards.

    With --branches, a line's worth is the mean outcome reward of rollouts from the state after it,
    minus that of rollouts from the state before it. The column `surprise` is how little the policy
    foresaw the answer to the line, in nats a token. To restore a state, the preceding lines are
    replayed in a kernel with the same seed. If their output is not reproducible, no worth is given.
    """
    is_golden = path.suffix == SUFFIX
    if model is not None and branches is None:
        raise ConfigError(f"--model {model} has no effect without --branches K")
    if branches is not None and is_golden:
        raise ConfigError(
            "--branches needs trajectories that a model sampled; expected a run or a .jsonl"
        )
    part = RunPart(step=step, held_out=held_out)
    source = path if is_golden and not part.is_chosen else part_of(path, part, say=shared.say)
    groups = _groups(source, files=files, overrides=overrides)
    wanted = [
        (where, ledger)
        for group in groups
        for where, ledger in group
        if problem_id in (None, where, ledger.scored.trajectory.problem_id)
    ]
    if not wanted:
        raise ConfigError(f"no trajectory {problem_id!r} in {str(path)!r}")
    if num_silent := [_mass(group) for group in groups].count(0.0):
        verb = "has" if num_silent == 1 else "have"
        shared.say(f"{num_silent} of {len(groups)} groups {verb} no signal")
    if branches is None:
        screen = Screen()
        for where, ledger in wanted[:count]:
            screen.ledger(f"{where} {ledger.scored.trajectory.problem_id}", ledger)
        return
    plan = shared.plan_beside(path, model, {"files": files, "overrides": overrides})
    shared.load_libraries(plan)
    with Screen() as screen, _open_worths(plan, screen) as worths_of:
        for where, ledger in wanted[:count]:
            table, unknown = worths_of(ledger.scored, branches)
            screen.ledger(f"{where} {ledger.scored.trajectory.problem_id}", ledger)
            screen.table(table)
            for row in unknown:
                screen.say(row)


@contextlib.contextmanager
def _open_worths(
    plan: Plan, screen: Screen
) -> Iterator[Callable[[Scored, int], tuple[Table, list[str]]]]:
    """Open the plan's policy. Yields a function of a stored trajectory and a number of branches.

    It returns a table of what each line was worth, by so many continuations of the state before it,
    with the policy's surprises at their answers, and why states are not in it. It raises
    ConfigError where the policy would have been asked in other tokens.
    """
    from repl_rl.training import (
        evaluate,
        runtime,  # torch: seconds
        train,
    )

    loaded = runtime.load_policy(plan, train.policy_folder(plan, screen), say=screen.say)
    fmt = plan.format(loaded.chat_template)
    with runtime.open_runtime(plan, loaded, say=screen.say) as opened:

        def worths_of(scored: Scored, num_branches: int) -> tuple[Table, list[str]]:
            asked = make_prompt(plan.task, scored.problem, fmt)
            check_asked(scored, asked, loaded.codec, source=loaded.source)
            setup = (*opened.origin.setup, *scored.problem.setup)
            attempts = attempts_around(scored, setup, num_branches=num_branches)
            made = evaluate.run_shown(opened, attempts, "branches", screen)
            table = worth_table(worths(scored, made), opened.surprises(scored))
            return table, list(unknown_rows(why_not_again(scored.trajectory.lines, setup)))

        yield worths_of


def unknown_rows(reasons: Sequence[str | None]) -> Iterator[str]:
    """Say why the states before lines have no value, `reasons` [L]: neighbours in one row.

    >>> print(*unknown_rows([None, "line 1 is timeout", "line 1 is timeout"]))
    -  before lines 2 to 3: line 1 is timeout
    """
    for why, alike in itertools.groupby(enumerate(reasons, 1), lambda one: one[1]):
        first, *others = [number for number, _ in alike]
        if why is not None:
            where = f"lines {first} to {others[-1]}" if others else f"line {first}"
            yield f"-  before {where}: {why}"


def _groups(
    path: Path, *, files: Sequence[Path] = (), overrides: Sequence[str] = ()
) -> list[Group]:
    """Every trajectory of a file.

    The group with the largest gradient comes first, and in it the trajectory with the largest
    share: many groups of a run have no gradient. The transcripts of a golden file are one group, in
    their own order.

    Stored trajectories keep their stored rewards; advantages follow the config of the run, then
    `files` and `overrides`. A golden transcript is scored here. Raises ConfigError for what cannot
    be read.
    """
    if path.suffix == SUFFIX:
        return [_golden(path, files, overrides)]
    members: defaultdict[object, list[StoredTrajectory]] = defaultdict(list)
    for place in places(path):
        members[place.group].append(place)
    found = [*itertools.chain(*members.values())]
    if not found:
        raise ConfigError(f"{str(path)!r} holds no whole trajectory")
    items = annotate(found, config_of(found[0], files=files, overrides=overrides).grpo)
    groups = [
        [(item.id, item.ledger) for item in itertools.islice(items, len(same))]
        for same in members.values()
    ]
    for group in groups:
        group.sort(key=lambda row: row[1].mass, reverse=True)
    return sorted(groups, key=_mass, reverse=True)


def _mass(group: Group) -> float:
    """The mass of its gradient; 0 where all siblings earned the same."""
    return math.fsum(ledger.mass for _, ledger in group)


def _golden(path: Path, files: Sequence[Path], overrides: Sequence[str]) -> Group:
    suite = Suite.open(path, files=files, overrides=overrides)
    refuse_foreign_code(suite.config, user_settings(files=files, overrides=overrides), path.name)
    played = suite.played()
    scored = [suite.scored(one) for one in played]
    made = ledgers(scored, advantage_rows(scored, load_credit(suite.config.grpo)))
    names = (f"{path.name}:{one.golden.number}" for one in played)
    return list(zip(names, made, strict=True))
