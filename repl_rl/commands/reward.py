"""`repl-rl reward COMMAND`: hold a reward to golden transcripts, explain it, try its constants.

Heavy imports stand inside commands; `test` and `mutate` need no torch at all.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

import click

from repl_rl.commands import options as shared
from repl_rl.errors import ConfigError

MISSED = 1


@click.group()
def reward() -> None:
    """Test a reward, explain it, try its constants."""


_options = shared.with_options(shared.FILES, shared.OVERRIDES)


@reward.command()
@click.argument("paths", nargs=-1, required=True, type=Path, metavar="FILE...")
@_options
def test(paths: tuple[Path, ...], files: tuple[Path, ...], overrides: tuple[str, ...]) -> None:
    """Hold a reward to golden transcripts.

    A folder stands for all *.repl below it. Exit code 1 if one differs. docs/files.md
    describes the format.
    """
    from repl_rl.golden.suites import Suites

    suites = Suites.open(paths, files=files, overrides=overrides)
    found = [miss for suite in suites.suites for miss in suite.misses()]
    for miss in found:
        click.echo(f"{miss}\n")
    click.echo(suites.summary(len({(miss.path, miss.title) for miss in found})))
    sys.exit(MISSED if found else 0)


@reward.command()
@click.argument("paths", nargs=-1, required=True, type=Path, metavar="FILE...")
@click.option(
    "--skip", multiple=True, metavar="KEY", help="Leave constants out: line, verdict.wrong."
)
@_options
def mutate(
    paths: tuple[Path, ...],
    skip: tuple[str, ...],
    files: tuple[Path, ...],
    overrides: tuple[str, ...],
) -> None:
    """Find constants that could change unseen.

    Changes each constant under [reward] and says which changes no golden transcript notices.

    A sign is flipped, a value set to zero and doubled, a zero set to 0.1 and -0.1. Exit code 1 if a
    mutant survives: `unwritten` changes a reward that no transcript states, `untouched` changes
    none. A mutant that the config refuses has not survived. Constants that a function of your own
    does not read are named and get no mutants.
    """
    from repl_rl.golden.suites import Suites

    suites = Suites.open(paths, files=files, overrides=overrides)
    if any(miss for suite in suites.suites for miss in suite.misses()):
        raise ConfigError("these transcripts miss as it is; mend what `repl-rl reward test` shows")
    fates = suites.mutate(skip=skip)
    survivors = [(mutant, fate) for mutant, fate in fates if fate.is_survivor]
    for mutant, fate in survivors:
        click.echo(f"survived  {mutant.key:22}{mutant.change:18}{fate}")
    counts = Counter(fate for _, fate in fates)
    text = ", ".join(f"{count} {fate}" for fate, count in sorted(counts.items()))
    click.echo(f"{len(fates)} mutants: {text}" if fates else "0 mutants")
    for suite in suites.suites:
        if unread := ", ".join(suite.unread()):
            what = f"{suite.config.reward.function} reads no {unread}"
            none_left = "" if fates else ", so nothing under [reward] can be varied"
            click.echo(f"{suite.file.path}: {what}{none_left}")
    sys.exit(MISSED if survivors else 0)


@reward.command()
@shared.run_argument()
@shared.PART
@click.option(
    "--id", "problem_id", metavar="ID", help="FILE:NUMBER, or that of a problem, or a title."
)
@shared.count(3, "How many to show.")
@click.option(
    "--branches",
    type=click.IntRange(min=1),
    metavar="K",
    help="Say what each line was worth, by K rollouts from the state before it.",
)
@click.option(
    "--model", type=Path, metavar="PATH", help="What goes on from there [the run's last weights]."
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

    The share is the line's part of the group's gradient: |advantage| summed over its tokens. A
    run's group with the largest gradient comes first. Groups whose siblings all earned the same
    have no gradient.

    RUN is a run folder [the newest in runs/], whose last training step is explained, a .jsonl file,
    or a .repl file, whose transcripts count as siblings. Stored trajectories keep their stored
    rewards.

    With --branches, a line's worth is the mean outcome reward of what follows the state after it,
    less that of the state before it. A state is had again by running the lines before in a kernel
    with the same seed; where they may print something else, nothing is said.
    """
    from repl_rl.commands.explain import explain as find
    from repl_rl.commands.explain import mass
    from repl_rl.runs.run_files import part_of
    from repl_rl.show.display import Screen

    is_golden = path.suffix == ".repl"
    if branches is not None and is_golden:
        raise ConfigError(
            "--branches goes on from what a model sampled; expected a run or a .jsonl"
        )
    part = shared.part(step=step, held_out=held_out)
    source = path if is_golden and not part.is_chosen else part_of(path, part, say=shared.say)
    groups = find(source, files=files, overrides=overrides)
    wanted = [
        (where, ledger)
        for group in groups
        for where, ledger in group
        if problem_id in (None, where, ledger.scored.trajectory.problem_id)
    ]
    if not wanted:
        raise ConfigError(f"no trajectory {problem_id!r} in {str(path)!r}")
    if num_silent := [mass(group) for group in groups].count(0.0):
        verb = "has" if num_silent == 1 else "have"
        shared.say(f"{num_silent} of {len(groups)} groups {verb} no signal")
    if branches is None:
        screen = Screen()
        for where, ledger in wanted[:count]:
            screen.ledger(f"{where} {ledger.scored.trajectory.problem_id}", ledger)
        return
    plan = shared.plan_beside(path, model, {"files": files, "overrides": overrides})
    shared.load_libraries(plan)
    from repl_rl.commands.branches import open_worths

    with Screen() as screen, open_worths(plan, screen) as worths_of:
        for where, ledger in wanted[:count]:
            found = worths_of(ledger.scored, branches)
            screen.ledger(f"{where} {ledger.scored.trajectory.problem_id}", ledger)
            screen.worths(found)
