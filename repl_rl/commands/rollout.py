"""`repl-rl rollout` and `repl-rl play`: one trajectory in the open, by a policy or by a person.

Heavy imports stand inside commands; `play` needs no torch at all.
"""

from __future__ import annotations

import asyncio
import shlex
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from repl_rl.commands import options as shared
from repl_rl.errors import ConfigError

if TYPE_CHECKING:
    from repl_rl.commands.play import Played
    from repl_rl.commands.rollout_subject import Subject
    from repl_rl.show.display import Screen
    from repl_rl.types import Origin, Scored

INTERRUPTED = 130

_PROBLEM = click.option(
    "--problem", metavar="ID", help="Its id in `repl-rl tasks` or a trajectory [the first]."
)


@click.command()
@shared.with_options(
    shared.TASK,
    _PROBLEM,
    shared.MODEL,
    shared.ENGINE,
    shared.SEED,
    shared.FILES,
    shared.OVERRIDES,
)
@click.option("--tokens", is_flag=True, help="A row for each token: id, mask, log-probabilities.")
@click.option("--output", type=Path, metavar="FILE", help="Add the trajectory to this .jsonl.")
def rollout(problem: str | None, tokens: bool, output: Path | None, **options: Any) -> None:
    """Sample one trajectory and check everything.

    Shows its lines as they are sampled, its verdict, its rewards and its tokens. Then checks mask,
    tokens, log-probabilities, limits and rewards. Exit code 1 if a check fails.
    """
    from repl_rl.runs.trajectory_file import check_appendable
    from repl_rl.show.display import Screen

    model = options["model"]
    plan = shared.plan_of(options) if model is None else shared.plan_of_run(Path(model), options)
    if output is not None:
        check_appendable(output)
    shared.load_libraries(plan)
    from repl_rl.commands.rollout_check import findings
    from repl_rl.commands.rollout_job import roll_out

    with Screen() as screen:
        subject, origin = roll_out(plan, problem, screen)
    _show(subject, Screen(), is_table=tokens)
    failure = None if output is None else _add(output, subject.scored, origin)
    try:
        shared.report(findings(subject))
    finally:
        if failure is not None:
            raise failure  # it matters more than a failed check


def _show(subject: Subject, screen: Screen, *, is_table: bool) -> None:
    from repl_rl.replay.vocabulary import token_texts
    from repl_rl.show import rollout_view as view

    trajectory, decode = subject.trajectory, subject.codec.decode
    texts = token_texts(trajectory, decode) or [decode([i]) for i in trajectory.completion_ids]
    screen.say("")
    for row in view.result_rows(subject.scored):
        screen.say(row)
    screen.say("")
    if is_table:
        rows = view.token_table(trajectory, texts, subject.scores.shifted)
    else:
        screen.say(view.legend_of_tokens())
        rows = view.token_rows(trajectory, texts, width=shutil.get_terminal_size().columns)
    for row in rows:
        screen.say(row)
    screen.say("")


def _add(path: Path, scored: Scored, origin: Origin) -> ConfigError | None:
    """Keep it there, and say so. Returns what went wrong."""
    from repl_rl.runs.trajectory_file import append

    try:
        append(path, [scored], origin=origin)
    except OSError as error:
        return ConfigError(f"cannot write to {str(path)!r}: {error.strerror}; it is not kept")
    except ConfigError as error:
        return error
    click.echo(f"kept: {path}\n")
    return None


@click.command()
@shared.with_options(shared.TASK, _PROBLEM, shared.SEED, shared.FILES, shared.OVERRIDES)
@click.option("--output", type=Path, metavar="DIR", help="Run folder [runs/play-TASK-TIME].")
def play(problem: str | None, output: Path | None, **options: Any) -> None:
    """Be the policy: write the lines yourself.

    They run in a sealed kernel and earn the reward of a policy. Below each line come its outcome,
    its reward and the sum so far. submit_final_answer(...) ends the game with a verdict, Ctrl-D
    without one, and Ctrl-C calls it off. There are no limits in tokens.
    """
    from repl_rl.commands.attempts import find_attempt
    from repl_rl.commands.play import Game, playable
    from repl_rl.runs.folder import check_output, new_run_path
    from repl_rl.show.display import Screen
    from repl_rl.show.player_console import StandardPlayerConsole

    plan = playable(shared.task_plan_of(options))
    config = plan.config
    path = output or new_run_path(f"play-{config.task.name}", Path("runs"))
    check_output(path)
    with Screen() as screen:
        attempt = find_attempt(plan.task, problem, seed=config.seed, screen=screen)
    screen = Screen()
    limit = config.sampling.max_lines
    screen.say(
        f"problem {attempt.problem.id}, {limit} lines at most. Ctrl-D ends, Ctrl-C calls off."
    )
    game = Game(plan=plan, attempt=attempt, console=StandardPlayerConsole(screen))
    code = shared.code_options(config, options["files"])
    _keep(path, asyncio.run(game.play()), screen, code=code)


def _keep(path: Path, played: Played, screen: Screen, *, code: Sequence[str]) -> None:
    """Show what it was worth, save it, and say where.

    Exit code 130 if it was called off; raises the failure of ours that ended it.
    """
    from repl_rl.runs.folder import PLAYED, RunFolder
    from repl_rl.show.rollout_view import result_rows
    from repl_rl.types import StopReason

    scored = played.scored
    is_called_off = scored.trajectory.stop_reason is StopReason.CANCELLED
    screen.say("")
    if is_called_off and not scored.trajectory.lines:
        screen.say("called off before the first line: nothing is kept")
        sys.exit(INTERRUPTED)
    for row in result_rows(scored):
        screen.say(row)
    folder = RunFolder(path)
    folder.write_config(played.origin, policy="a person", device="cpu")
    folder.append_trajectories(PLAYED, [scored])
    step = shlex.join(["repl-rl", "replay", str(path), *code])
    screen.say(f"\nrun folder: {path}\nnext: {step}")
    if played.failure is not None:
        raise played.failure
    if is_called_off:
        sys.exit(INTERRUPTED)
