"""Records keep to the classes that verl and SkyRL publish, which run here without their packages.

The variable ADAPTER_WHEELS names a folder with their wheels, as `pip download --no-deps verl skyrl`
leaves them. Definitions are cut out of the wheels and executed; nothing of them is installed.
"""

from __future__ import annotations

import ast
import dataclasses
import enum
import os
import re
import typing
import zipfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import repl_rl
from record_readers import read_skyrl, read_verl, written
from repl_rl import export
from repl_rl.records import OutcomeKind, Scored, Trajectory

Make = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]

torch = pytest.importorskip("torch")
pydantic = pytest.importorskip("pydantic")
np = pytest.importorskip("numpy")
WHEELS = os.environ.get("ADAPTER_WHEELS", "")
pytestmark = pytest.mark.skipif(not WHEELS, reason="ADAPTER_WHEELS names no folder of wheels")

ROOT = Path(__file__).parents[3]
OUTPUT, WRONG = OutcomeKind.OK_OUTPUT, OutcomeKind.NAME_ERROR
PARTS = ((" y\n", WRONG, "no\n>>>"), (" 1\n", OUTPUT, None))
"""12 tokens: 3 sampled, 6 injected, 3 sampled."""


def source(package: str, path: str) -> str:
    (wheel,) = Path(WHEELS).glob(f"{package}-*.whl")
    with zipfile.ZipFile(wheel) as opened:
        return opened.read(path).decode()


def published(package: str, path: str, *names: str, **known: Any) -> dict[str, Any]:
    """Definitions of these names at the top of a module; `known` is what they use."""
    nodes: dict[str, ast.stmt] = {}
    for node in ast.parse(source(package, path)).body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef):
            nodes[node.name] = node
        elif isinstance(node, ast.AnnAssign):
            nodes[ast.unparse(node.target)] = node
    space = {**vars(typing), "__name__": "published", **known}
    code = ast.Module([nodes[name] for name in names], type_ignores=[])
    exec(compile(code, path, "exec", dont_inherit=True), space)
    return space


@pytest.fixture
def pair(make_trajectory: Make, make_scored: MakeScored) -> list[Scored]:
    first = make_trajectory(PARTS)
    second = make_trajectory(((" 3\n", OUTPUT, None),), sibling_index=1)
    return [make_scored(first, 1.0, (-0.25, 0.0)), make_scored(second, 0.0, (0.0,))]


# verl

LOOP = "verl/experimental/agent_loop/agent_loop.py"


@pytest.fixture
def output() -> Any:
    """Its class `AgentLoopOutput`."""
    return published(
        *("verl", LOOP, "AgentLoopMetrics", "AgentLoopOutput"),
        BaseModel=pydantic.BaseModel,
        torch=torch,
    )["AgentLoopOutput"]


def test_a_record_of_verl_is_its_output(output: Any, pair: list[Scored]) -> None:
    row = repl_rl.advantages(pair)[0]
    record = export.verl(pair[0], row)
    assert record.keys() <= output.model_fields.keys()
    made = output(**record)
    assert read_verl(made.model_dump()) == written(pair[0], row)


def test_what_its_trainer_takes_from_it_is_the_row(output: Any, pair: list[Scored]) -> None:
    """The reward of 0.75 stands at the last token."""
    row = repl_rl.advantages(pair)[0]
    made = output(**export.verl(pair[0], row)).as_dict()
    assert made["response_mask"].tolist() == [1] * 3 + [0] * 6 + [1] * 3
    assert made["rollout_log_probs"].tolist() == [-1.0] * 3 + [0.0] * 6 + [-1.0] * 3
    assert made["rm_scores"].tolist() == [0.0] * 11 + [0.75]
    assert made["extra_fields"]["advantages"] == row


def test_the_override_of_the_page_carries_line_advantages_to_its_loss(
    output: Any, pair: list[Scored]
) -> None:
    """Page, class, its trainer's function: what comes out is the row, in single precision."""
    core = published(
        *("verl", "verl/trainer/ppo/core_algos.py", "AdvantageEstimator"),
        *("ADV_ESTIMATOR_REGISTRY", "register_adv_est", "get_adv_estimator_fn"),
        Enum=enum.Enum,
        torch=torch,
        AdvantageEstimatorFn=Callable,
    )
    page = (ROOT / "docs" / "export.md").read_text()
    (block,) = re.findall(r"^class Lines.*?(?=^```)", page, re.MULTILINE | re.DOTALL)
    shown = {
        "AgentLoopOutput": output,
        "torch": torch,
        "register_adv_est": core["register_adv_est"],
    }
    exec(block, shown)
    row = repl_rl.advantages(pair)[0]
    made = shown["Lines"](**export.verl(pair[0], row)).as_dict()
    compute = published(
        *("verl", "verl/trainer/ppo/ray_trainer.py", "compute_advantage"),
        AdvantageEstimator=core["AdvantageEstimator"],
        DataProto=object,
        AlgoConfig=object,
        core_algos=SimpleNamespace(**core),
    )["compute_advantage"]
    batch = {
        "response_mask": made["response_mask"][None],
        "token_level_rewards": made["rm_scores"][None],
    }
    data = SimpleNamespace(batch=batch, non_tensor_batch={"uid": np.array(["p"])})
    found = compute(data, adv_estimator="lines", config={}).batch["advantages"]
    assert any(row)
    assert torch.equal(found, torch.tensor([row]))


def test_its_trainer_still_goes_by_way_of_that_dictionary() -> None:
    """The two places that the override counts on, which no class shows."""
    kept = source("verl", "verl/trainer/ppo/v1/agent_loop_tq.py")
    assert "field = output.as_dict()" in kept
    read = source("verl", "verl/trainer/ppo/v1/trainer_base.py")
    assert 'data.batch["token_level_scores"] = data.batch["rm_scores"]' in read
    assert 'data.batch["token_level_rewards"] = data.batch["token_level_scores"]' in read


# SkyRL

BASE = "skyrl/train/generators/base.py"
CHECK = "skyrl/train/utils/trainer_utils.py"


@pytest.mark.parametrize("as_rewards", [False, True])
def test_a_batch_of_skyrl_passes_its_own_check(pair: list[Scored], as_rewards: bool) -> None:
    names = dict.fromkeys(("ConversationType", "RoutedExpertIndices", "SampleSupport"), Any)
    classes = ("TrajectoryID", "BatchMetadata", "GeneratorInput", "GeneratorOutput")
    annotations: dict[str, Any] = {"TrainingPhase": str, **names}
    base = published(
        *("skyrl", BASE, *classes), dataclass=dataclasses.dataclass, torch=torch, **annotations
    )
    check = published(
        *("skyrl", CHECK, "validate_generator_output"),
        GeneratorOutput=base["GeneratorOutput"],
        np=np,
        logger=SimpleNamespace(warning=pytest.fail),
        _validate_per_token_side_channels=lambda *_: None,  # of experts, which are not exported
    )["validate_generator_output"]
    rows = repl_rl.advantages(pair)
    batch = export.skyrl(pair, rows, as_rewards=as_rewards)
    assert batch.keys() <= base["GeneratorOutput"].__annotations__.keys()
    check(2, batch)
    if as_rewards:
        assert read_skyrl(batch, 0) == written(pair[0], rows[0])
    else:
        assert [sum(rewards) for rewards in batch["rewards"]] == [0.75, 0.0]


def test_an_estimator_gets_the_rewards_of_tokens() -> None:
    """It is called with `token_level_rewards` and `response_mask`, both of the whole response."""
    space = published(
        *("skyrl", "skyrl/backends/skyrl_train/utils/ppo_utils.py"),
        "compute_advantages_and_returns",
        torch=torch,
        np=np,
        AlgorithmConfig=object,
        AdvantageEstimator=str,
        AdvantageEstimatorRegistry=SimpleNamespace(
            get=lambda _: lambda token_level_rewards, **_: (token_level_rewards,) * 2
        ),
    )
    rewards, mask = torch.tensor([[0.5, 0.0, -1.0]]), torch.ones(1, 3)
    found, _ = space["compute_advantages_and_returns"](
        rewards, mask, np.array([0]), adv_estimator="lines", config=None
    )
    assert torch.equal(found, rewards)
