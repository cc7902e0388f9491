"""Resuming a run: how far it came, and what of its folder stays when it goes on from there.

    run folder -> Begun -> the same folder as it was at its newest whole checkpoint

Knows names of files and rows of metrics. Does not know what is in a checkpoint.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from repl_rl.base.disk import remove, replace_file
from repl_rl.base.plugins import no_such
from repl_rl.config import Config
from repl_rl.config.resolve import differences, read_config, resolve
from repl_rl.errors import ConfigError
from repl_rl.runs.folder import (
    BEST,
    CHECKPOINTS,
    COMPLETE,
    FINAL,
    MEASURED,
    METRICS,
    PLAYED,
    evaluation_name,
    numbered_checkpoints,
    read_record,
    read_versions,
    rollouts_name,
    run_of,
    updates_of,
)
from repl_rl.runs.metrics import measured_rate, read_rows, row_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Begun:
    """A run that can go on."""

    run: Path
    checkpoint: Path | None
    """Its newest whole checkpoint; None where it goes on from its first weights."""
    policy: str
    """The weights that the run started from."""

    @property
    def step(self) -> int:
        """Updates that `checkpoint` has seen."""
        return 0 if self.checkpoint is None else _number(self.checkpoint)


def begun(run: Path) -> Begun:
    """The run in a folder; ConfigError where there is none that can go on."""
    if not run.exists():
        raise no_such("run folder", run)
    if (owner := run_of(run)) not in (None, run):
        raise ConfigError(f"{str(run)!r} is a checkpoint; give its run, {str(owner)!r}")
    if read_record(run) is not None:
        raise ConfigError(
            f"{str(run)!r} is a warm start, which cannot be resumed; train from its weights: "
            f"repl-rl train --model {run}"
        )
    policy = read_versions(run).get("policy")
    is_run = all((run / name).is_file() for name in (METRICS, "config.toml"))
    if not is_run or policy is None or _is_sampled_alone(run):
        raise ConfigError(f"{str(run)!r} holds no run; expected a folder that `train` has made")
    numbered = numbered_checkpoints(run / CHECKPOINTS)
    whole = [path for path in numbered if (path / COMPLETE).is_file()]
    if numbered and not whole:
        raise ConfigError(
            f"{str(numbered[-1])!r} holds weights alone, without the optimiser's state; begin a "
            f"new run with --config {run / 'config.toml'} --model {numbered[-1]}"
        )
    return Begun(run=run, checkpoint=whole[-1] if whole else None, policy=policy)


def newest_run(root: Path, *, to_resume: bool = False, is_trained: bool = False) -> Path:
    """The run under `root` that was written to last; ConfigError where there is none.

    One that was only played or measured is none that `is_trained`. A warm start is one, but none
    `to_resume`.
    """
    times = {path.parent: path.stat().st_mtime for path in root.glob(f"*/{METRICS}")}
    if to_resume or is_trained:
        times = {run: time for run, time in times.items() if not _is_sampled_alone(run)}
    if to_resume:
        times = {run: time for run, time in times.items() if read_record(run) is None}
    if not times:
        what = "no run to resume" if to_resume else "no run"
        raise ConfigError(f"{what} in {str(root)!r}; name its folder")
    return max(times, key=lambda run: (times[run], run.name))


def _is_sampled_alone(run: Path) -> bool:
    """Say whether `play` or `eval --output` made the folder: nothing was trained in it."""
    return any((run / "trajectories" / f"{name}.jsonl").is_file() for name in (PLAYED, MEASURED))


_MAY_DIFFER = (
    *("grpo.steps", "sampling.engine_timeout_s", "sampling.servers", "sampling.weights"),
    *("sampling.weights_dir", "sandbox.standby"),
)
"""Settings on which no trajectory and no update depends."""
_MAY_DIFFER_ALL = ("report.", "workers.")
"""Beginnings of others."""


def changes(begun: Begun, config: Config) -> list[str]:
    """Say which settings of a run are others from here on.

    Raises ConfigError where its parts would not be one run, or where nothing is left to do.
    """
    run, rows = begun.run, []
    for key, was, now in differences(resolve(saved=read_config(run / "config.toml")), config):
        if key not in _MAY_DIFFER and not key.startswith(_MAY_DIFFER_ALL):
            raise ConfigError(
                f"{key} = {now} here, {was} in {str(run)!r}; a resumed run keeps its settings; "
                f"only {', '.join(_MAY_DIFFER)}, report.* and workers.* may differ; for others "
                f"start a new run"
            )
        schedule = config.trl.get("lr_scheduler_type", "constant")
        if key == "grpo.steps" and not str(schedule).startswith("constant"):
            raise ConfigError(
                f"grpo.steps = {now} here, {was} in {str(run)!r}: trl.lr_scheduler_type = "
                f"{schedule!r} depends on the number of steps; start a new run"
            )
        rows.append(f"{key} = {now}, {was} before")
    if has_ended(begun, steps=config.grpo.steps, measures=config.eval.problems > 0):
        raise ConfigError(
            f"{str(run)!r} has ended after step {begun.step}; give it more to do with --set "
            f"grpo.steps=N"
        )
    if begun.step > config.grpo.steps:
        raise ConfigError(
            f"{str(run)!r} is at step {begun.step}; expected grpo.steps of at least that"
        )
    return rows


def has_ended(run: Begun, *, steps: int, measures: bool) -> bool:
    """Say whether a run of so many steps has nothing left to do.

    measures: held-out problems, after its last step as well
    """
    is_measured = not measures or steps in evaluated_steps(run.run)
    return run.step >= steps and is_measured and (run.run / CHECKPOINTS / FINAL).is_dir()


def evaluated_steps(run: Path) -> dict[int, float]:
    """The steps after which an evaluation is on record, with the rate that it found."""
    rates = ((row.step, measured_rate(row)) for row in read_rows(run))
    return {step: rate for step, rate in rates if rate is not None}


def cut(run: Begun) -> list[str]:
    """Take out what lies beyond the checkpoint, so that it is written anew. Says what was cut.

    Rows and files of an evaluation at the checkpoint's own step stay if it ended.
    """
    messages, step, path = [], run.step, run.run / METRICS
    lines = path.read_bytes().splitlines()
    rows = [(row, line) for line in lines if (row := row_of(line)) is not None]
    retained = [line for row, line in rows if row.step <= step]
    if len(rows) < len(lines):
        messages.append(f"{METRICS}: removed a row that was cut off")
    if num_beyond := len(rows) - len(retained):
        messages.append(f"{METRICS}: removed {num_beyond} rows beyond step {step}")
    replace_file(path, b"".join(line + b"\n" for line in retained))
    stale = list(_stale_files(run.run / "trajectories", step, evaluated_steps(run.run)))
    for file in stale:
        file.unlink()
    if stale:
        names = stale[0].name if len(stale) == 1 else f"{stale[0].name} ... {stale[-1].name}"
        messages.append(f"trajectories: removed {len(stale)} files beyond step {step} ({names})")
    for checkpoint in numbered_checkpoints(run.run / CHECKPOINTS):
        if _number(checkpoint) > step:
            remove(checkpoint)
    remove(run.run / CHECKPOINTS / FINAL)
    best = run.run / CHECKPOINTS / BEST
    seen = updates_of(best)
    if seen is not None and seen not in evaluated_steps(run.run):
        messages.append(f"checkpoints: removed {BEST}, whose measurement is not on record")
        remove(best)
    return messages


def are_later(run: Begun) -> bool:
    """Say whether the weights that a run started from were written after its first rollouts."""
    policy, first = Path(run.policy), run.run / "trajectories" / f"{rollouts_name(0)}.jsonl"
    if not policy.is_absolute() or not first.exists():  # a name on the hub
        return False
    weights = policy.glob("*.safetensors") if policy.is_dir() else [policy]
    return any(file.stat().st_mtime > first.stat().st_mtime for file in weights)


def best_rate(run: Path) -> float:
    """The rate of the weights in `checkpoints/best`, below any other where there are none.

    A resume may have taken them away: earlier rates, whose weights nobody has, are no bar then.
    """
    best = run / CHECKPOINTS / BEST
    if not best.is_dir():
        return -1.0
    step, rates = updates_of(best), evaluated_steps(run)
    if step is not None and step in rates:
        return rates[step]
    return max((rate for at, rate in rates.items() if at > 0), default=-1.0)


def _stale_files(folder: Path, step: int, measured: Iterable[int]) -> Iterator[Path]:
    """Files of rollouts that no kept update has read, and of evaluations that did not end."""
    kept = set(map(evaluation_name, measured))
    for path in sorted(folder.glob("*.jsonl")):
        if named := re.fullmatch(r"step-(\d+)", path.stem):
            if int(named[1]) >= step:
                yield path
        elif re.fullmatch(r"eval-\d+", path.stem) and path.stem not in kept:
            yield path


def _number(checkpoint: Path) -> int:
    return int(checkpoint.name.rpartition("-")[2])
