"""Several processes hold a model together: what leaves it and what it learns are a whole one's.

Shards are those of FSDP2, over gloo on a CPU.
"""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from adapter_kit import wrapped
from one_shard import CPU, PROBE, Own, updated
from ranks_kit import DEADLINE_S, run_ranks
from repl_rl.config import Config
from repl_rl.config.sections import GRPOConfig, SamplingConfig
from repl_rl.engines.hf import HF
from repl_rl.engines.memory import measure
from repl_rl.engines.vllm.engine import VLLM
from repl_rl.engines.vllm.server import VLLMServer
from repl_rl.errors import ConfigError
from repl_rl.models.loading import load_model, logprobs, num_parameters, read_files
from repl_rl.models.precision import Precision
from repl_rl.models.weights import named_weights
from repl_rl.records import OutcomeKind, Scored
from repl_rl.rollout.plan import make_plan
from repl_rl.training.warmstart import estimate_warm
from repl_rl.update.grpo import check_shards_of
from repl_rl.update.ranks import ALONE, Ranks, check_shards
from repl_rl.update.trainer import MovedWeights
from trainer_kit import difference
from warm_python import WarmPython

pytestmark = [pytest.mark.slow, pytest.mark.timeout(2 * DEADLINE_S)]
OK, ERROR = OutcomeKind.OK_OUTPUT, OutcomeKind.NAME_ERROR
MODELS = ("model", "adapted")

Found = dict[str, Any]


@pytest.fixture(scope="module")
def folders(model_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """A model, and an adapter of it that has learnt something."""
    adapted = tmp_path_factory.mktemp("adapted")
    wrapped(model_folder).save(adapted)
    return {"model": model_folder, "adapted": adapted}


@pytest.fixture(scope="module", params=[2, 4])
def output(
    request: pytest.FixtureRequest,
    folders: dict[str, Path],
    tmp_path_factory: pytest.TempPathFactory,
    three_groups: list[Scored],
    warm_python: WarmPython,
) -> Path:
    """Findings of so many processes: see `one_shard.py`."""
    output: Path = tmp_path_factory.mktemp("shards")
    rows = output / "rows.pickle"
    rows.write_bytes(pickle.dumps(three_groups))
    words = (*(str(folders[name]) for name in MODELS), str(rows), str(output))
    run_ranks(request.param, warm_python, output, *words, script="one_shard.py")
    return output


@pytest.fixture(scope="module")
def ranks(output: Path) -> list[Found]:
    files = sorted(output.glob("*.pt"))
    return [torch.load(file, weights_only=False) for file in files]


@pytest.fixture(scope="module")
def learnt(
    folders: dict[str, Path], three_groups: list[Scored], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Found]:
    """Weights that one process learns from all rows."""
    folder: Path = tmp_path_factory.mktemp("one")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
        patch.setenv("HF_HUB_OFFLINE", "1")
        return {
            name: updated(str(folders[name]), three_groups, folder / name, ALONE) for name in MODELS
        }


@pytest.mark.parametrize("name", MODELS)
def test_weights_are_gathered_by_all_under_the_names_of_a_whole_model(
    ranks: list[Found], folders: dict[str, Path], name: str
) -> None:
    """Adapters are added to what they are for, from whole matrices."""
    loaded = load_model(str(folders[name]), device=CPU, precision=Precision())
    expected = dict(named_weights(loaded.model))
    for found in ranks:
        assert list(found[name]["weights"]) == list(expected)
        assert difference(found[name]["weights"], expected) < 1e-6
    if name == "model":
        assert all(torch.equal(ranks[-1][name]["weights"][key], expected[key]) for key in expected)


def test_the_first_rank_alone_keeps_what_all_gather(ranks: list[Found]) -> None:
    kept = [found["model"]["kept"] for found in ranks]
    assert kept == [len(ranks[0]["model"]["weights"]), *[0] * (len(ranks) - 1)]


@pytest.mark.parametrize("name", MODELS)
def test_a_sharded_model_scores_as_a_whole_one(
    ranks: list[Found], folders: dict[str, Path], name: str
) -> None:
    loaded = load_model(str(folders[name]), device=CPU, precision=Precision())
    expected = logprobs(loaded, [*PROBE, *PROBE], len(PROBE), temperature=1.0)
    for found in ranks:
        assert found[name]["score"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("name", MODELS)
def test_a_sharded_model_is_saved_as_a_whole_one(
    output: Path, ranks: list[Found], folders: dict[str, Path], name: str
) -> None:
    """After a forward, which leaves some of its weights whole for a while."""
    saved = load_model(str(output / f"{name}-saved"), device=CPU, precision=Precision())
    loaded = load_model(str(folders[name]), device=CPU, precision=Precision())
    ours, theirs = (dict(one.model.named_parameters()) for one in (saved, loaded))
    assert difference(ours, theirs) == 0
    assert saved.config.architectures == loaded.config.architectures


def test_samples_of_shards_are_together_one_of_all_weights(
    ranks: list[Found], folders: dict[str, Path]
) -> None:
    model = load_model(str(folders["model"]), device=CPU, precision=Precision()).model
    sampled = [found["model"]["sampled"] for found in ranks]
    assert sum(sampled) == num_parameters(model.config)
    total = sum(one.double().sum().item() for one in model.parameters())
    assert sum(found["model"]["sum"] for found in ranks) == pytest.approx(total)


def test_the_share_that_moved_is_that_of_the_weights_of_all() -> None:
    """This rank's two have both moved, and none of the other's six: 2 of 8."""

    class Two(Ranks):
        def gather(self, rows: Any) -> Any:
            return [*rows, (0, 6)]

    model, shares = torch.nn.Linear(2, 1, bias=False), list[float]()
    model.weight.grad = torch.ones(1, 2)
    callback = MovedWeights(shares.append, seed=0, ranks=Two(world=2))
    nothing: Any = None
    callback.on_pre_optimizer_step(nothing, nothing, nothing, model=model)
    with torch.no_grad():
        model.weight += 1
    callback.on_optimizer_step(nothing, nothing, nothing)
    assert shares == [0.25]


def test_all_ranks_forward_what_the_first_one_probes_its_servers_with(
    ranks: list[Found], folders: dict[str, Path]
) -> None:
    """The first probe is off by 0.0013, the second agrees: 0.0009 for both, below 0.001."""
    first, *others = ranks_shared = [found["shared"] for found in ranks]
    assert [found["forwards"] for found in ranks_shared] == [2] * len(ranks)
    assert first["gap"] == pytest.approx(0.0013 / 2**0.5, rel=1e-2)
    assert first["sampled"] == 2
    assert [found["sampled"] for found in others] == [0] * len(others)
    assert [found["adopted"] for found in others] == [["of 3"]] * len(others)
    assert {found["gap"] for found in others} == {first["gap"]}
    own = Own(str(folders["model"])).loaded.model
    assert difference(first["given"], dict(named_weights(own))) == 0


def test_ranks_with_engines_of_their_own_forward_for_each_in_turn(ranks: list[Found]) -> None:
    found = [one["alone"] for one in ranks]
    assert [one["forwards"] for one in found] == [2 * len(ranks)] * len(ranks)
    assert all(one["sampled"] == 2 and one["given"] and not one["adopted"] for one in found)


@pytest.mark.train
@pytest.mark.parametrize("name", MODELS)
def test_shards_learn_what_a_whole_model_learns(
    ranks: list[Found], learnt: dict[str, Found], name: str
) -> None:
    """By accelerate's own way, of which the device alone is another one here."""
    one = learnt[name]
    for found in (ranks[0][f"updated {name}"], ranks[-1][f"updated {name}"]):
        assert difference(found["weights"], one["weights"]) < 1e-5
    rows = ranks[0][f"updated {name}"]["rows"]
    for row, expected in zip(rows, one["rows"], strict=True):
        for key in ("loss", "reward", "mean_kl_penalty", "importance/mean"):
            if key in expected:
                assert row[key] == pytest.approx(expected[key], abs=1e-5), key


@pytest.mark.train
@pytest.mark.parametrize("name", MODELS)
def test_ranks_of_shards_forward_equally_often(ranks: list[Found], name: str) -> None:
    """Else one waits in a collective for ever."""
    counts = [found[f"updated {name}"]["forwards"] for found in ranks]
    assert counts[0] > 0
    assert len(set(counts)) == 1


@pytest.mark.train
@pytest.mark.parametrize("name", MODELS)
def test_a_run_of_shards_goes_on_from_its_sharded_checkpoint(
    output: Path, ranks: list[Found], name: str
) -> None:
    """It has whole weights beside its shards, for those that do not train."""
    whole, resumed = ranks[0][f"updated {name}"], ranks[0][f"resumed {name}"]
    assert difference(resumed["weights"], whole["weights"]) < 1e-6
    checkpoint = output / f"run-{name}" / "checkpoint-2"
    assert {"pytorch_model_fsdp_0", "optimizer_0", "COMPLETE", "tokenizer.json"} <= {
        path.name for path in checkpoint.iterdir()
    }
    loaded = load_model(str(checkpoint), device=CPU, precision=Precision())
    assert difference(dict(named_weights(loaded.model)), whole["weights"]) < 1e-6
    file = "adapter_model" if name == "adapted" else "model"
    stored = load_file(checkpoint / f"{file}.safetensors")
    assert not any("_checkpoint_wrapped" in key for key in stored)


FSDP2 = {"ACCELERATE_USE_FSDP": "true", "FSDP_VERSION": "2"}


def checked(environment: dict[str, str], *, engine: Any = VLLMServer, **settings: Any) -> None:
    device = settings.pop("device", "cuda")
    trains_adapter = settings.pop("trains_adapter", False)
    check_shards(
        Config(model="m", **settings),
        engine(),
        device=device,
        trains_adapter=trains_adapter,
        environment=environment,
    )


def test_shards_are_taken_where_the_engine_samples_elsewhere() -> None:
    checked(FSDP2)
    checked({}, engine=HF, device="cpu")
    checked(FSDP2, grpo=GRPOConfig(dtype="bfloat16"), trains_adapter=True)


@pytest.mark.parametrize(
    ("environment", "settings", "expected"),
    [
        (FSDP2, {"engine": HF}, "the engine 'vllm-server' instead of 'hf'"),
        (FSDP2, {"engine": VLLM}, "the engine 'vllm-server' instead of 'vllm'"),
        (FSDP2, {"device": "cpu"}, "a GPU, as accelerate shards nothing on a cpu"),
        ({"ACCELERATE_USE_FSDP": "1"}, {}, "fsdp_version: 2"),
        (FSDP2 | {"FSDP_STATE_DICT_TYPE": "FULL_STATE_DICT"}, {}, "fsdp_state_dict_type: SHARDED"),
        (FSDP2 | {"FSDP_ACTIVATION_CHECKPOINTING": "true"}, {}, "fsdp_activation_checkpointing"),
        (FSDP2, {"sampling": SamplingConfig(run_on="forbid")}, "sampling.run_on = 'allow'"),
        (FSDP2, {"grpo": GRPOConfig(dtype="bfloat16")}, "grpo.dtype = 'mixed'"),
        (
            FSDP2 | {"FSDP_CPU_RAM_EFFICIENT_LOADING": "true"},
            {"grpo": GRPOConfig(kl_beta=0.1)},
            "fsdp_cpu_ram_efficient_loading: false",
        ),
        (
            FSDP2,
            {"trl": {"sync_ref_model": True}, "grpo": GRPOConfig(kl_beta=0.1)},
            "trl.sync_ref_model = false",
        ),
    ],
)
def test_shards_that_cannot_be_are_refused_with_what_they_take(
    environment: dict[str, str], settings: dict[str, Any], expected: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        checked(environment, **settings)
    assert str(refused.value).startswith(f"FSDP shards the weights, which needs {expected}")
    assert "; or launch without it" in str(refused.value)


def test_deepspeed_is_refused_whatever_samples() -> None:
    with pytest.raises(ConfigError, match=r"^DeepSpeed shards the weights, .* launch without it"):
        checked({"ACCELERATE_USE_DEEPSPEED": "true"})


def test_a_warm_start_takes_no_shards(monkeypatch: pytest.MonkeyPatch) -> None:
    """A policy that engines sample from in its process; one rank would leave it on the host."""
    monkeypatch.setenv("ACCELERATE_USE_FSDP", "true")
    with pytest.raises(ConfigError, match=r"^FSDP shards the weights, .* launch without it"):
        estimate_warm(make_plan(Config(model="m")), "m", say=print)


@pytest.mark.parametrize("is_sharding", [True, False])
def test_a_run_goes_on_with_weights_as_it_began(tmp_path: Path, is_sharding: bool) -> None:
    (tmp_path / "whole").mkdir()
    (tmp_path / "shards" / "pytorch_model_fsdp_0").mkdir(parents=True)
    same, other = ("shards", "whole")[:: 1 if is_sharding else -1]
    check_shards_of(tmp_path / same, is_sharding=is_sharding)
    was, wanted = ("whole", "in shards")[:: 1 if is_sharding else -1]
    with pytest.raises(ConfigError, match=f"{other}' are {was}, but .* wants them {wanted};"):
        check_shards_of(tmp_path / other, is_sharding=is_sharding)


def test_a_rank_of_four_holds_a_quarter_of_what_is_trained(folders: dict[str, Path]) -> None:
    """Float32: 4 bytes of a weight, 4 of its gradient, 8 of its moments."""
    files = read_files(str(folders["model"]))

    def measured(num_shards: int | None) -> Any:
        config = Config(model="m", grpo=GRPOConfig())
        return measure(
            config, VLLMServer(), files, Precision(), row_tokens=50, is_training=True,
            num_shards=num_shards,
        )  # fmt: skip

    one, four = measured(None), measured(4)
    assert four.weights == one.weights / 4
    assert four.optimiser == one.optimiser / 4
    assert four.gradients == one.gradients / 4
    assert four.activations > one.activations
