"""Everything a run needs that must be closed again: kernels, grader, engine, event loop.

    Plan -> report of memory -> LoadedModel -> Runtime: run attempts, sync weights, sleep

Callers wait while the loop runs, and a signal may end that in order. Opens and closes; does not
know what the run is for.

After each `sync` a probe asks whether the engine samples from the weights that are trained: a few
tokens, scored on both sides.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import os
import statistics
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from repl_rl.base.concurrency import Interrupts, derive_seed
from repl_rl.base.disk import written_aside
from repl_rl.credit.base import More
from repl_rl.engines.base import (
    BusyEngine,
    Engine,
    PrefixSharing,
    SelfDescribing,
    SharedEngine,
    Weights,
    answered_within,
)
from repl_rl.engines.hf import HF
from repl_rl.engines.memory import (
    LESS_TO_SAMPLE,
    Memory,
    measure,
    must_recompute,
    rows_at_once,
    shortage_explained,
)
from repl_rl.errors import ConfigError, DivergedError, EngineError
from repl_rl.models import loading
from repl_rl.models.policy import check_trainable
from repl_rl.models.precision import Precision, keys_in, precision, slowness, warning
from repl_rl.models.weights import AdaptedModel, is_sharded, leaving_weights
from repl_rl.progress import SILENT, Progress
from repl_rl.records import Attempt, Origin, Problem, Scored
from repl_rl.rollout.builder import check_prompt
from repl_rl.rollout.env import Env
from repl_rl.rollout.observations import Answers
from repl_rl.rollout.plan import Plan, TrajectorySampler
from repl_rl.rollout.runner import RolloutRunner
from repl_rl.rollout.workers import WorkerPool
from repl_rl.runs.folder import RunFolder
from repl_rl.runs.sink import Sink
from repl_rl.tasks.base import make_prompt
from repl_rl.transcript.encoding import Encoding, prompt_ids
from repl_rl.update.ranks import ALONE, Ranks, is_sharding

_SAMPLED_TOKENS = 8
"""Most tokens of a line that is sampled to check them."""
_NUM_PROBES = 4
"""Lines that are sampled, one after another, until they agree."""
_EXACT_GAP, _HALF_GAP = 1e-3, 0.2
"""Root mean square of the difference of log-probabilities, nats. Engines in float32 differ by 1e-6
to 1e-5. In bfloat16, whose logits near 16 lie 1/16 apart or more, they differ by 0.1 where a token
was in doubt and by 1e-4 where none other was likely; weights that are stale differ by 1 and more
where they do. Squares tell these two apart: lines of few tokens may hold nothing but doubt."""


@dataclass
class Manner:
    """An engine's way of sampling, which `say` hears of where it has become another one."""

    engine: Engine
    say: Callable[[str], None]
    said: str | None = None
    """None before it has its first weights, which may decide it."""
    walks_weights: bool = True
    """False once it has taken an adapter alone, and left the weights that it belongs to."""

    @property
    def about(self) -> str:
        return self.engine.about if isinstance(self.engine, SelfDescribing) else ""

    def tell(self) -> None:
        said, self.said = self.said, self.about
        if said not in (None, self.said):
            self.say(f"engine: from here on {self.said}")


T = TypeVar("T")

_PROMPT_TOKENS = 64
"""Leading tokens of a prompt that an engine's weights are checked with."""

Score = Callable[[Sequence[int], int], list[float]]
"""(ids, start) -> log-probabilities of `ids[start:]`, nats: see `loading.logprobs`."""

_CLOSE_S = 60.0
"""The most that an engine may take to close."""


@dataclass(frozen=True, slots=True)
class Runtime:
    """An open plan: an `Env` and an engine, on an event loop."""

    plan: Plan
    env: Env
    engine: BusyEngine
    origin: Origin
    """The origin of what is sampled with it."""
    context_tokens: int
    """The most tokens that the sampler allows a trajectory, prompt included."""
    runner: RolloutRunner
    loaded: loading.LoadedModel
    interrupts: Interrupts
    ranks: Ranks
    _manner: Manner
    _loop: asyncio.Runner
    _probe: Sequence[int]
    """The tokens to sample after when the engine's weights are checked."""
    _row_tokens: int
    """The most tokens of a row in the engine."""
    workers: WorkerPool | None = None
    """Makers of its attempts, if these are not made here."""

    def run(
        self,
        attempts: Sequence[Attempt],
        *,
        on_sampled: Callable[[], None] = lambda: None,
        on_scored: Callable[[Scored], None] | None = None,
        more: More | None = None,
    ) -> list[Scored]:
        """Call `RolloutRunner.run`, or `WorkerPool.run`."""
        made_by = self.workers or self.runner
        return self._run(
            made_by.run(attempts, on_sampled=on_sampled, on_scored=on_scored, more=more)
        )

    @property
    def about_engine(self) -> str:
        """The engine in a few words, with the memory that it will take for keys and values."""
        plan, loaded, manner = self.plan, self.loaded, self._manner.about
        kind = plan.engine
        about = f"{plan.about_engine}: {kind.about(plan.config)}"
        more = f"; {manner}" if manner else ""
        if not kind.holds_keys:
            return about + more
        dtype = loaded.precision.sampling
        if kind.shares_weights:
            dtype = keys_in(dtype, loaded.model.device.type)
        num_tokens = kind.kept_tokens(plan.sampling.max_in_flight, self._row_tokens)
        size = loading.cache_bytes(loaded, num_tokens=num_tokens, dtype=dtype)
        return f"{about}, keys and values up to {size / 2**20:,.0f} MiB{more}"

    @property
    def answers(self) -> Answers:
        """Finder of the answers in its trajectories."""
        return Answers(Encoding(self.env.format, self.loaded.codec), setup=self.env.setup)

    def surprises(self, scored: Scored) -> dict[int, float]:
        """Nats a token of the answer to each line that has one, by its index, to the model."""
        row = scored.trajectory
        ids, start = [*row.prompt_ids, *row.completion_ids], len(row.prompt_ids)
        return self.answers.surprises(scored, self._score(ids, start, is_sampled=row.loss_mask))

    def sampling_by(self, sampler: TrajectorySampler) -> Runtime:
        """Return the runtime with another sampler, for attempts that no engine makes."""
        return replace(self, runner=self.runner.sampling_by(sampler), workers=None)

    def begin_folder(self, folder: RunFolder, *, policy: str) -> None:
        """Write into a run's folder what says how its trajectories are sampled."""
        folder.write_config(self.origin, policy=policy, device=self.loaded.model.device.type)
        with written_aside(folder.tokenizer) as aside:
            self.loaded.tokenizer.save_pretrained(aside)

    def sink(self, folder: RunFolder, progress: Progress, *, step: int = 0) -> Sink:
        """Make the sink of a run that is at `step`."""
        shield = self.interrupts.shield
        return Sink(folder, self.plan.config, warn=progress.warn, shield=shield, step=step)

    def sleep(self) -> None:
        """Call `Engine.sleep`. No line is asked for before the next `sync`."""
        self._run(self.engine.sleep())

    def sync(self, version: int) -> float:
        """Give the engine the weights, and probe it.

        Of ranks that share servers, the first one gives the weights to them and checks for all.
        Where weights are sharded all ranks gather them before that, and forward what it asks for.
        """
        ranks, model, manner, gap = self.ranks, self.loaded.model, self._manner, 0.0
        shared = manner.engine if isinstance(manner.engine, SharedEngine) else None
        sends = shared is None or ranks.is_first
        weights = leaving_weights(model, is_kept=sends, is_walked=manner.walks_weights)
        make = partial(
            sync,
            self.engine,
            self.loaded,
            self._probe,
            version=version,
            temperature=self.plan.sampling.temperature,
            timeout_s=self.plan.sampling.engine_timeout_s,
            weights=weights,
        )
        if is_sharded(model):
            for rank in range(1 if shared is not None else ranks.world):
                with scored_by_all(self._score, ranks, leader=rank) as score:
                    if rank == ranks.rank:
                        gap = self._run(make(score=score))
        elif sends:
            gap = self._run(make())
        if shared is None:
            return gap
        walked = not isinstance(weights, AdaptedModel) or weights.was_walked
        label, gap, manner.walks_weights = ranks.from_first((shared.label, gap, walked))
        if not ranks.is_first:
            self._run(shared.adopt(label, version=version))
        if self.workers is not None:
            self.workers.adopt(label, version=version)
        return gap

    def _score(
        self, ids: Sequence[int], start: int, *, is_sampled: Sequence[bool] | None = None
    ) -> list[float]:
        temperature = self.plan.sampling.temperature
        return loading.logprobs(
            self.loaded, ids, start, temperature=temperature, is_sampled=is_sampled
        )

    def _run(self, main: Coroutine[Any, Any, T]) -> T:
        with shortage_explained("the rollouts", remedy=LESS_TO_SAMPLE):
            done = self.interrupts.run(self._loop, main)
        self._manner.tell()
        return done


@contextlib.contextmanager
def open_runtime(
    plan: Plan,
    loaded: loading.LoadedModel,
    *,
    say: Callable[[str], None] = SILENT.say,
    watch: Callable[[Engine], Engine] = lambda engine: engine,
    interrupts: Interrupts | None = None,
    ranks: Ranks = ALONE,
    make_workers: Callable[..., WorkerPool] | None = None,
) -> Iterator[Runtime]:
    """Kernels forked, grader started, engine ready; all gone after the block, however it ends.

    `say` hears of an engine that has to go on in another way. `watch` may put something between the
    engine and all that use it. Without `interrupts` a Ctrl-C is the event loop's.
    `make_workers` is a WorkerPool that lacks what is known here: with it the plan's workers make
    the attempts, if there are any.

    Where `auto` came to an engine that does not start, or does not sample from the weights, the
    runtime's plan and model are those of the engine `hf`, unless servers are listed. Raises
    ConfigError if the trajectories in flight cannot fit in memory, or one of them in what the model
    attends to.
    """
    interrupts = interrupts or Interrupts()
    opening = partial(
        _opened,
        say=say,
        watch=watch,
        interrupts=interrupts,
        ranks=ranks,
        make_workers=make_workers if plan.workers.count else None,
    )
    runtime: Runtime | None = None
    with contextlib.ExitStack() as stack:
        try:
            runtime = stack.enter_context(opening(plan, loaded))
        except (ConfigError, EngineError) as error:
            if not plan.why_engine or plan.engine.name == HF.name or plan.sampling.servers:
                raise
            plan = plan.sampled_by(HF(), str(error))
        # Out of the error's reach: its traceback would hold what vLLM has taken of a GPU's memory.
        if runtime is None:
            types = precision(plan, plan.engine, device=loaded.model.device.type)
            runtime = stack.enter_context(opening(plan, replace(loaded, precision=types)))
        yield runtime


@contextlib.contextmanager
def _opened(
    plan: Plan,
    loaded: loading.LoadedModel,
    *,
    say: Callable[[str], None],
    watch: Callable[[Engine], Engine],
    interrupts: Interrupts,
    ranks: Ranks,
    make_workers: Callable[..., WorkerPool] | None,
) -> Iterator[Runtime]:
    sampling = plan.sampling
    fmt = plan.format(loaded.chat_template)
    prompts, row_tokens, context_tokens = _lengths(plan, loaded)
    num_rows = sampling.max_in_flight
    if plan.engine.holds_keys:
        loading.check_memory(loaded, num_rows=num_rows, row_tokens=row_tokens)
    env = Env(plan, fmt)
    with asyncio.Runner() as loop:
        stack = contextlib.AsyncExitStack()
        try:
            opened = plan.engine.open(plan.config, loaded, row_tokens=row_tokens)
            if isinstance(opened, PrefixSharing):
                opened.share(_beginning(prompts))
            manner = Manner(opened, say)
            engine = BusyEngine(watch(opened))
            stack.push_async_callback(_close, engine)
            sampler = plan.make_sampler(
                engine, loaded.codec, fmt, sampling, context_tokens=context_tokens
            )
            interrupts.run(loop, stack.enter_async_context(env))
            runtime = Runtime(
                plan=plan,
                env=env,
                engine=engine,
                origin=env.origin(tokenizer=loaded.source),
                context_tokens=context_tokens,
                runner=env.runner(sampler),
                loaded=loaded,
                interrupts=interrupts,
                ranks=ranks,
                _manner=manner,
                _loop=loop,
                _probe=prompts[0][:_PROMPT_TOKENS],
                _row_tokens=row_tokens,
            )
            if make_workers is not None:
                workers = make_workers(
                    plan=plan,
                    files=loaded,
                    row_tokens=row_tokens,
                    context_tokens=context_tokens,
                    runner=runtime.runner,
                    on_sampled=engine.count_elsewhere,
                    first=ranks.rank * plan.workers.count,
                )
                interrupts.run(loop, stack.enter_async_context(workers))
                runtime = replace(runtime, workers=workers)
            # A server may hold the weights of another run.
            runtime.sync(0)
            yield runtime
        finally:
            loop.run(stack.aclose())


@contextlib.contextmanager
def scored_by_all(score: Score, ranks: Ranks, *, leader: int) -> Iterator[Score]:
    """Let all ranks forward what the leader scores within the block: as often, and the same.

    A forward of a sharded model gathers its layers, and hangs unless all ranks make it. The
    others enter the block when the leader has left it.
    """
    end: tuple[Sequence[int], int] | None = None

    def led(ids: Sequence[int], start: int) -> list[float]:
        ranks.gather([(ids, start)])
        return score(ids, start)

    if ranks.rank != leader:
        while (asked := ranks.gather([end])[leader]) is not None:
            score(*asked)
    yield led
    if ranks.rank == leader:
        ranks.gather([end])


async def sync(
    engine: Engine,
    loaded: loading.LoadedModel,
    prompt: Sequence[int],
    *,
    version: int,
    temperature: float,
    timeout_s: float = 600.0,
    weights: Weights | None = None,
    score: Score | None = None,
) -> float:
    """Give `engine` the model's weights, and check that it samples from them.

    `weights` and `score` stand for the model where it is sharded. Returns the root mean square of
    the difference between the log-probabilities of a few tokens after `prompt`, as the engine gave
    them and as the model has them, nats. Raises EngineError if it is too large: engines have been
    seen to keep an old output layer, or old keys and values. A small update that is lost shows only
    after some more. Raises DivergedError for weights that are no longer finite.
    Raises EngineError as well if it takes more than `timeout_s` for the weights, or for a line.
    """
    async with answered_within(timeout_s, f"the weights of step {version}"):
        await engine.sync(weights or leaving_weights(loaded.model), version=version)
    score = score or partial(loading.logprobs, loaded, temperature=temperature)
    limit = _EXACT_GAP if loaded.precision.is_exact else _HALF_GAP
    squares: list[float] = []
    for probe in range(_NUM_PROBES):
        seed = derive_seed("probe", version, probe)
        try:
            async with answered_within(timeout_s, "a line"):
                line = await engine.line(prompt, max_tokens=_SAMPLED_TOKENS, seed=seed)
        except EngineError:
            _refuse_diverged(score(prompt, len(prompt) - 1), version)  # then the engine is right
            raise
        scored = score([*prompt, *line.ids], len(prompt))
        _refuse_diverged(scored, version)
        squares += [(a - b) ** 2 for a, b in zip(scored, line.logprobs, strict=True)]
        # One unlikely token that is rounded another way is no sign of other weights.
        if (gap := math.sqrt(statistics.fmean(squares))) <= limit:
            return gap
    raise EngineError(
        f"the engine does not sample from the weights of step {version}: log-probabilities of "
        f"{len(squares)} tokens differ by {gap:.2g} (root mean square); {_remedy(loaded.precision)}"
    )


def _refuse_diverged(logprobs: Sequence[float], version: int) -> None:
    if not all(map(math.isfinite, logprobs)):
        raise DivergedError(
            f"training diverged at step {version}: log-probabilities are not finite; lower "
            f"grpo.learning_rate, or grpo.max_grad_norm"
        )


def _remedy(types: Precision) -> str:
    if not types.is_shared:
        return (
            "let servers serve the model that is trained, with the run's sampling.dtype as "
            "--dtype, or use the engine 'hf', which shares the trainer's weights"
        )
    if types.is_exact:
        return "it shares the trainer's model, so its cache reads that model wrongly; use 'vllm'"
    return "give grpo.dtype = 'float32' to see whether it is rounding alone"


def load_policy(
    plan: Plan,
    policy: str,
    *,
    say: Callable[[str], None],
    is_training: bool = False,
    ranks: Ranks = ALONE,
) -> loading.LoadedModel:
    """The model in `policy`, for this plan, after a report of the memory that it takes.

    Raises ConfigError, before weights are read, for what cannot fit, and as `open_runtime`.
    """
    gather = ranks.gather
    return estimate(plan, policy, say=say, is_training=is_training, ranks=ranks, gather=gather)()


def estimate(
    plan: Plan,
    policy: str,
    *,
    say: Callable[[str], None],
    is_training: bool = False,
    ranks: Ranks = ALONE,
    gather: Callable[[Sequence[tuple[bool, int]]], list[tuple[bool, int]]] = list,
) -> Callable[[], loading.LoadedModel]:
    """Report the memory that `load_policy` would take. Returns what then reads the weights.

    `gather` returns recomputation and micro-batch, as they suit this rank, for all ranks.
    Raises ConfigError as `load_policy` does.
    """
    grpo = plan.grpo
    local_rank = ranks.local_rank if ranks.are_several else None
    device = loading.pick_device(plan.sampling.device, local_rank=local_rank)
    types = precision(plan, plan.engine, device=device.type)
    files = loading.read_files(policy, run_on=plan.sampling.run_on, say=say)
    plan.engine.check_forbidden(len(files.forbidden_ids))
    if is_training:
        check_trainable(files.forbidden_ids, files.config)
        files = loading.to_train(files, plan.lora)
    _, row_tokens, _ = _lengths(plan, files)
    num_shards = ranks.world if is_training and is_sharding() else None

    def taken(recomputes: bool, num_rows: int = grpo.most_rows) -> Memory:
        return measure(
            plan.changed(grpo=replace(grpo, micro_batch_size=num_rows)),
            plan.engine,
            files,
            types,
            row_tokens=row_tokens,
            is_training=is_training,
            recomputes=recomputes,
            device=device.type,
            num_shards=num_shards,
        )

    free = loading.free_bytes(device)
    recomputes = must_recompute(grpo.gradient_checkpointing, taken, free)
    num_rows = grpo.most_rows
    if is_training and grpo.micro_batch_size == "auto" and device.type == "cuda":
        size = grpo.problems_per_step * grpo.group_size // ranks.world
        num_rows = rows_at_once(plan, size, taken=partial(taken, recomputes), free=free)
    # Ranks forward equally often, and one may have less memory.
    all_recompute, all_rows = zip(*gather([(recomputes, num_rows)]), strict=True)
    recomputes, num_rows = any(all_recompute), min(all_rows)
    memory = taken(recomputes, num_rows)
    memory.check(free)
    say(f"device: {loading.about_device(device, visible=os.environ.get('CUDA_VISIBLE_DEVICES'))}")
    say(f"memory: {memory.row(free)}")
    if is_training and recomputes:
        say("  activations are recomputed in the backward pass (gradient_checkpointing)")
    if num_rows != grpo.most_rows:
        say(f"  {num_rows} trajectories per forward and backward pass (micro_batch_size)")
    if memory.update_peak > free:
        longest = plan.sampling.max_tokens
        say(f"  an update needs this much only if trajectories have {longest} tokens")
    # An adapter is float32.
    is_rounded = is_training and files.adapter is None
    if is_rounded and (text := warning(types, learning_rate=grpo.learning_rate)) is not None:
        say(text)
    if (text := slowness(types, device)) is not None:
        say(text)
    return partial(
        loading.load_weights,
        files,
        device=device,
        precision=types,
        recomputes=recomputes,
        micro_batch_size=num_rows,
        spare_bytes=memory.spare(free),
        is_to_be_sharded=num_shards is not None,
    )


def _lengths(plan: Plan, model: loading.ModelFiles) -> tuple[list[list[int]], int, int]:
    """Ids of some prompts of both splits, tokens of the engine's longest row, and the most that a
    sampler allows a trajectory.

    Raises ConfigError where no turn ends, if the model does not attend to as many, or if a row of
    a file has a prompt that is too long: a run that drew it would end there, each time it resumes.
    """
    fmt, codec = plan.format(model.chat_template), model.codec
    Encoding(fmt, codec)

    def ids_of(problem: Problem) -> list[int]:
        return prompt_ids(make_prompt(plan.task, problem, fmt), codec)

    most = 0
    for problem in plan.longest_problems:
        most = max(most, count := len(ids_of(problem)))
        check_prompt(problem, count, context_tokens=model.context_tokens)
    prompts = [ids_of(one) for one in plan.sample_problems]
    longest = max(map(len, prompts), default=0)
    row_tokens = longest + plan.sampling.max_tokens
    context_tokens = loading.usable_context(model, row_tokens=row_tokens)
    row_tokens = min(context_tokens, row_tokens)
    if not plan.engine.rows_grow:
        # Another prompt may be longer.
        row_tokens = context_tokens = min(context_tokens, row_tokens + max(longest, most - longest))
    return prompts, row_tokens, context_tokens


def _beginning(prompts: Sequence[Sequence[int]]) -> list[int]:
    """Return the beginning of all prompts. The config alone decides it, as it must all samples."""
    columns = zip(*prompts, strict=False)
    return [column[0] for column in itertools.takewhile(lambda ids: len(set(ids)) == 1, columns)]


async def _close(engine: Engine) -> None:
    """One that hangs is left behind: its run has ended, and says why."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_S):
            await engine.aclose()
