"""Several processes train as one: a group may have siblings in two of them."""

from __future__ import annotations

import asyncio
import json
import pickle
import signal
import socket
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, get_args

import pytest
import torch

from ranks_kit import DEADLINE_S, run_ranks
from repl_rl.base.concurrency import Interrupts, received_signals
from repl_rl.config import Config
from repl_rl.config.sections import GRPOConfig, Loss, SamplingConfig
from repl_rl.credit.advantages import advantage_rows, load_credit
from repl_rl.engines.base import BusyEngine
from repl_rl.engines.hf import HF
from repl_rl.engines.scripted import ScriptedEngine, script
from repl_rl.engines.vllm.engine import VLLM
from repl_rl.engines.vllm.server import VLLMServer
from repl_rl.errors import ConfigError, RankError
from repl_rl.progress import SILENT
from repl_rl.records import Attempt, OutcomeKind, Problem, Scored, Split, Trajectory
from repl_rl.rollout.plan import make_plan
from repl_rl.rollout.runner import Waits
from repl_rl.training.runtime import Runtime
from repl_rl.training.steps import ProblemSequence, Training
from repl_rl.training.train import train
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.update import ranks as update_ranks
from repl_rl.update.ranks import (
    ALONE,
    Ranks,
    check_seen,
    launched,
    peers_named,
    refuse_shared,
    without_launcher,
)
from repl_rl.update.trainer import rows_per_rank
from repl_rl.viewer.show.display import Screen
from trainer_kit import Step, Tensors, difference
from warm_python import WarmPython

OK, ERROR = OutcomeKind.OK_OUTPUT, OutcomeKind.NAME_ERROR
pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * DEADLINE_S)]
STEPS = {
    "steps": 2,
    "problems_per_step": 3,
    "group_size": 4,
    "micro_batch_size": 3,
    "warmup_steps": 0,
    "learning_rate": 1e-4,
}
RUNS: dict[str, dict[str, Any]] = {
    **{loss_type: {"loss_type": loss_type} for loss_type in get_args(Loss) if loss_type != "bnpo"},
    "grpo of weighed lines, scaled by batch": {
        "scale": "batch",
        "loss_type": "grpo",
        "importance": "line",
        "gradient_checkpointing": True,
    },
}

MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]


Ended = list[tuple[Tensors, dict[str, float]]]


@pytest.fixture(scope="module")
def two_ranks(
    model_folder: Path,
    tmp_path_factory: pytest.TempPathFactory,
    three_groups: list[Scored],
    warm_python: WarmPython,
) -> list[Ended]:
    """Results of two processes: weights and logs of a run for each of RUNS."""
    output: Path = tmp_path_factory.mktemp("ranks")
    rows = output / "rows.pickle"
    rows.write_bytes(pickle.dumps(three_groups))
    runs = [STEPS | run for run in RUNS.values()]
    words = (str(model_folder), str(rows), str(output), json.dumps(runs))
    run_ranks(2, warm_python, output, *words)
    return [torch.load(output / f"{rank}.pt") for rank in range(2)]


@pytest.mark.train
@pytest.mark.parametrize("number", range(len(RUNS)), ids=list(RUNS))
def test_two_processes_train_as_one(
    step: Step, two_ranks: list[Ended], three_groups: list[Scored], number: int
) -> None:
    one = step(three_groups, **(STEPS | list(RUNS.values())[number]))
    for weights, logs in (ended[number] for ended in two_ranks):
        assert difference(one.weights, weights) < 1e-6
        for name in ("loss", "reward", *filter(is_of_importance, one.logs)):
            assert logs[name] == pytest.approx(one.logs[name], abs=1e-6), name


def is_of_importance(name: str) -> bool:
    return name.startswith("importance/")


def test_half_a_group_would_have_another_baseline(three_groups: list[Scored]) -> None:
    """Reason why rewards are gathered: the check above can fail."""
    credit = load_credit(GRPOConfig())
    apart = advantage_rows(three_groups[:6], credit) + advantage_rows(three_groups[6:], credit)
    together = advantage_rows(three_groups, credit)
    assert [i for i in range(12) if apart[i] != together[i]] == [4, 5, 6, 7]


def test_a_step_that_cannot_be_dealt_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"3 problems of 4 trajectories .* to 5 processes"):
        rows_per_rank(GRPOConfig(problems_per_step=3, group_size=4), num_ranks=5)


@pytest.mark.parametrize("group_size", [2, 3, 4, 6, 12])
def test_rows_have_the_same_seeds_in_one_process_and_in_several(group_size: int) -> None:
    """Also where siblings part: no two of them have one seed, which would be one trajectory."""
    numbers = [row // group_size for row in range(12)]
    whole = attempts_of(Ranks(), numbers, group_size)
    for world in (2, 3, 4):
        dealt = [
            attempt
            for rank in range(world)
            for ranks in [Ranks(rank=rank, world=world)]
            for attempt in attempts_of(ranks, ranks.share(numbers), group_size)
        ]
        assert dealt == whole
    assert len({attempt.seed for attempt in whole}) == 12
    assert [attempt.sibling_index for attempt in whole] == [row % group_size for row in range(12)]


def attempts_of(ranks: Ranks, numbers: Sequence[int], group_size: int) -> list[Attempt]:
    """Attempts that a rank of a run asks for in the step after 5 updates."""
    asked: list[Attempt] = []

    class Enough(Exception):
        pass

    def run(attempts: Sequence[Attempt], **_: Any) -> list[Scored]:
        asked.extend(attempts)
        raise Enough

    nothing: Any = None
    task: Any = Letters()
    runtime: Any = SimpleNamespace(
        run=run, sync=lambda _: 0.0, runner=SimpleNamespace(num_retries=0, waits=Waits()),
        ranks=ranks, interrupts=Interrupts(),
        engine=SimpleNamespace(num_sampled=0, busy_s=0.0, prefix_tokens=(0, 0)),
    )  # fmt: skip
    training = Training(
        settings=Config(grpo=GRPOConfig(group_size=group_size)),
        problems=ProblemSequence(task, seed=0),
        held_out=nothing,
        runtime=runtime,
        progress=SILENT,
        credit=load_credit(GRPOConfig(group_size=group_size)),
        sink=None,
    )
    with pytest.raises(Enough):
        training.collect(numbers, 5)
    return asked


class Letters:
    name = "letters"

    def problems(self, split: Split, *, seed: int) -> Iterator[Problem]:
        yield from (Problem(id=letter, statement="") for letter in "abcdefghijkl")


@pytest.mark.parametrize(("size", "world"), [(0, 2), (1, 3), (7, 3), (12, 5), (6, 1)])
def test_shares_in_the_order_of_ranks_are_all_rows(size: int, world: int) -> None:
    shares = [Ranks(rank=rank, world=world).share(range(size)) for rank in range(world)]
    assert [row for share in shares for row in share] == list(range(size))
    assert max(map(len, shares)) - min(map(len, shares)) <= 1


def test_a_launcher_says_which_process_this_is() -> None:
    assert launched({}) == Ranks(rank=0, world=1, local_rank=0, local_world=1)
    words = {"RANK": "5", "WORLD_SIZE": "8", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "4"}
    assert launched(words) == Ranks(rank=5, world=8, local_rank=1, local_world=4)


def test_ranks_on_several_hosts_say_so() -> None:
    assert str(Ranks(world=16, local_world=8)) == "16 processes on 2 hosts"
    assert str(Ranks(world=4, local_world=4)) == "4 processes"


def test_two_ranks_with_one_gpu_are_refused_by_name() -> None:
    refuse_shared(["A 1", "A 2", "A 1 elsewhere"])
    with pytest.raises(ConfigError, match=r"^ranks 1 and 3 would train on one GPU, A 2; start as"):
        refuse_shared(["A 1", "A 2", "A 3", "A 2"])


@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({"WORLD_SIZE": "two"}, "WORLD_SIZE = 'two' in the environment; a launcher sets it to a n"),
        ({"WORLD_SIZE": "2", "RANK": "-1"}, "RANK = '-1' in the environment"),
        ({"WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": ""}, "LOCAL_WORLD_SIZE = '' in the environment"),
        ({"RANK": "3"}, "RANK = 3 in the environment, of WORLD_SIZE = 1 processes"),
        ({"WORLD_SIZE": "4", "RANK": "4"}, "RANK = 4 in the environment, of WORLD_SIZE = 4"),
    ],
)
def test_variables_that_no_launcher_sets_are_refused(variables: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError) as refused:
        launched(variables)
    assert str(refused.value).startswith(said)


def test_a_folder_that_a_rank_does_not_see_is_refused_and_nothing_is_left(tmp_path: Path) -> None:
    """Else its part of a checkpoint would be missing, and nobody would hear of it."""

    class Two(Ranks):
        def gather(self, rows: Sequence[Any]) -> list[Any]:
            return [*rows, False]

    check_seen(tmp_path / "runs" / "a", ALONE)
    with pytest.raises(ConfigError, match=rf"^rank 1 does not see '{tmp_path}', where the run's"):
        check_seen(tmp_path / "runs" / "a", Two(world=2))
    assert list(tmp_path.iterdir()) == []


def test_a_process_alone_gathers_its_own() -> None:
    assert ALONE.gather([1, 2]) == ALONE.gather_first([1, 2]) == [1, 2]
    assert (ALONE.from_first("a"), ALONE.any(True), ALONE.any(False)) == ("a", True, False)


@pytest.mark.parametrize(
    ("name", "what"), [("ACCELERATE_USE_FSDP", "FSDP"), ("ACCELERATE_USE_DEEPSPEED", "DeepSpeed")]
)
def test_sharded_weights_are_refused_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, what: str
) -> None:
    monkeypatch.setenv(name, "true")
    with pytest.raises(ConfigError, match=f"^{what} shards the weights, .* launch without it"):
        train(make_plan(Config(preset="starter")), tmp_path / "run", Screen())
    assert not (tmp_path / "run").exists()


def test_an_engine_that_takes_one_process_is_refused_in_several() -> None:
    with pytest.raises(ConfigError, match="engine 'vllm' needs a single process"):
        VLLM().check_ranks()
    HF().check_ranks()
    VLLMServer().check_ranks()


def test_for_work_of_one_rank_alone_libraries_see_one_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "1")
    with without_launcher():
        assert launched() == ALONE
    assert launched().world == 2


def test_a_signal_waits_until_all_ranks_know_of_it() -> None:
    """Here another rank hears it: this one goes on until they ask each other."""
    is_heard_elsewhere = False
    with Interrupts(agree=lambda own: own or is_heard_elsewhere) as interrupts:
        assert interrupts.stoppable(lambda: 1) == 1
        interrupts.release()
        is_heard_elsewhere = True
        assert interrupts.stoppable(lambda: 2) == 2
        with pytest.raises(KeyboardInterrupt):
            interrupts.release()


def test_a_signal_to_one_of_several_ends_rollouts_and_nothing_else() -> None:
    with Interrupts(agree=lambda own: own) as interrupts:
        assert interrupts.stoppable(lambda: signal.raise_signal(signal.SIGTERM)) is None
        assert interrupts.stoppable(lambda: pytest.fail("sampled after the signal")) is None
        with pytest.raises(KeyboardInterrupt):
            interrupts.release()
    received_signals.clear()
    with Interrupts(agree=lambda own: own) as interrupts:
        signal.raise_signal(signal.SIGTERM)  # in an update, say
        assert interrupts.is_asked()
    received_signals.clear()


@pytest.fixture
def meeting(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """A port that somebody else listens at and never answers; ranks are to meet there."""
    monkeypatch.setattr(update_ranks, "_MEET_S", 1.0)
    for name in ("TORCHELASTIC_USE_AGENT_STORE", "TORCHELASTIC_RUN_ID"):
        monkeypatch.delenv(name, raising=False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        words = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(taken.getsockname()[1])}
        joined = {"ACCELERATE_TORCH_DEVICE": "cpu", "OMP_NUM_THREADS": "1"}
        for name, word in (words | joined | {"WORLD_SIZE": "2"}).items():
            monkeypatch.setenv(name, word)
        yield taken


def meet(monkeypatch: pytest.MonkeyPatch, rank: int) -> None:
    monkeypatch.setenv("RANK", str(rank))
    with Ranks(rank=rank, world=2).joined(device="cpu", timeout_s=9999):
        pytest.fail("nobody else is there")


def test_a_port_that_is_taken_is_refused_by_the_rank_that_listens_there(
    monkeypatch: pytest.MonkeyPatch, meeting: socket.socket
) -> None:
    place = rf"127\.0\.0\.1:{meeting.getsockname()[1]}"
    with pytest.raises(ConfigError, match=rf"^rank 0 cannot listen at {place}, .* is taken; set M"):
        meet(monkeypatch, 0)


def test_a_rank_that_meets_somebody_else_ends_in_time(
    monkeypatch: pytest.MonkeyPatch, meeting: socket.socket
) -> None:
    place = rf"127\.0\.0\.1:{meeting.getsockname()[1]}"
    with pytest.raises(RankError, match=rf"^rank 1 has not met the others at {place} within 1 s; "):
        meet(monkeypatch, 1)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_whose_peer_never_starts_ends_in_time(
    monkeypatch: pytest.MonkeyPatch, meeting: socket.socket, rank: int
) -> None:
    meeting.close()
    with pytest.raises(RankError, match=rf"^rank {rank} has not met the others .* all 2 run"):
        meet(monkeypatch, rank)


@pytest.mark.parametrize(
    ("name", "word"),
    [("MASTER_ADDR", None), *(("MASTER_PORT", word) for word in (None, "free", "65536"))],
)
def test_an_address_that_is_none_is_refused(
    monkeypatch: pytest.MonkeyPatch, meeting: socket.socket, name: str, word: str | None
) -> None:
    if word is None:
        monkeypatch.delenv(name)
    else:
        monkeypatch.setenv(name, word)
    with pytest.raises(ConfigError, match=r"^ranks cannot meet at MASTER_ADDR:MASTER_PORT = '"):
        meet(monkeypatch, 1)


def test_another_rank_that_is_gone_is_named_in_one_line() -> None:
    ended = "another process of this run has ended"
    with pytest.raises(RankError, match=ended), peers_named():
        raise RuntimeError("[gloo/transport/tcp/pair.cc:538] Connection closed by peer")
    with pytest.raises(RuntimeError, match="allocate"), peers_named():
        raise RuntimeError("cannot allocate memory")


class Shared(ScriptedEngine):
    """An engine over servers that several processes share."""

    label = ""

    def __init__(self) -> None:
        super().__init__(ByteCodec(), script())
        self.adopted: list[tuple[str, int]] = []

    async def adopt(self, label: str, *, version: int) -> None:
        self.adopted.append((label, version))


def test_of_ranks_that_share_servers_those_behind_the_first_adopt_its_weights() -> None:
    """The second rank neither sends weights nor samples a line: the first one's gap is its own."""

    class Second(Ranks):
        def gather(self, rows: Sequence[Any]) -> list[Any]:
            return [("run-3", 0.25, True), *rows]

    engine, nothing = Shared(), SimpleNamespace(model=torch.nn.Module())
    runtime: Any = SimpleNamespace(
        engine=BusyEngine(engine), ranks=Second(rank=1, world=2), loaded=nothing, _probe=[1],
        plan=SimpleNamespace(sampling=SamplingConfig()), _run=asyncio.run, workers=Shared(),
        _manner=SimpleNamespace(engine=engine, walks_weights=True),
    )  # fmt: skip
    runtime.workers.adopt = lambda label, version: runtime.workers.adopted.append((label, version))
    assert Runtime.sync(runtime, 3) == 0.25
    assert (engine.adopted, engine.num_sampled) == ([("run-3", 3)], 0)
    assert runtime.workers.adopted == [("run-3", 3)]  # and so do the workers of each rank
