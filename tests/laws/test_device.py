"""An update on a GPU is that of a CPU. `REPL_RL_TEST_DEVICE=cpu` runs this without one."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from device import DEVICE, on_device
from one_shard import updated
from ranks_kit import DEADLINE_S, run_ranks
from repl_rl.records import Scored
from repl_rl.update.ranks import ALONE
from repl_rl.update.token_tree import Branches, attend
from trainer_kit import difference
from warm_python import WarmPython

if TYPE_CHECKING:
    from trainer_kit import Step

pytestmark = [*on_device]


@pytest.mark.parametrize("loss", ["dapo", "grpo", "bnpo", "dr_grpo", "cispo", "sapo", "vespo"])
def test_an_update_is_that_of_a_cpu(step: Step, group: list[Scored], loss: str) -> None:
    """In float32: the loss, and all gradients to a thousandth of the largest."""
    here, there = (
        step(group, device=device, loss_type=loss, dtype="float32", importance="off")
        for device in ("cpu", DEVICE)
    )
    assert there.logs["loss"] == pytest.approx(here.logs["loss"], rel=1e-3, abs=1e-6)
    most = max(gradient.abs().max().item() for gradient in here.gradients.values())
    assert most > 0
    for name, gradient in here.gradients.items():
        assert (there.gradients[name].cpu() - gradient).abs().max().item() < 1e-3 * most, name


@pytest.mark.slow
@pytest.mark.timeout(2 * DEADLINE_S)
@pytest.mark.skipif(DEVICE != "cuda", reason="tests/laws/test_shards.py does it on a CPU")
def test_a_rank_that_holds_the_only_shard_learns_what_a_whole_model_learns(
    group: list[Scored], model_folder: Path, tmp_path: Path, warm_python: WarmPython
) -> None:
    """Under accelerate's FSDP2, from the memory of the host: the weights after two steps."""
    rows = tmp_path / "rows.pickle"
    rows.write_bytes(pickle.dumps(group * 3))
    words = (str(model_folder), "none", str(rows), str(tmp_path), "cuda")
    run_ranks(1, warm_python, tmp_path, *words, script="one_shard.py")
    there = torch.load(tmp_path / "0.pt", weights_only=False)["updated model"]
    here = updated(str(model_folder), group * 3, tmp_path / "here", ALONE)
    weights = {name: one.cpu() for name, one in there["weights"].items()}
    assert difference(weights, here["weights"]) < 1e-4


BRANCHES = [[(0, 40)], [(0, 25), (40, 73)], [(0, 25), (40, 60), (73, 74)], [(74, 90)]]
"""A prompt with a completion, a sibling, one that leaves the sibling for one token, another row."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_a_tree_is_attended_to_as_on_a_cpu(dtype: torch.dtype) -> None:
    """States and gradients of six heads over two of keys, beside those in float32 on a CPU."""
    torch.manual_seed(0)
    made = [torch.randn(1, heads, 90, 64).to(dtype) for heads in (6, 2, 2)]
    towards = torch.randn(1, 90, 6, 64)
    found = []
    for device, kind in (("cpu", torch.float32), (DEVICE, dtype)):
        query, key, value = (x.to(device, kind).requires_grad_() for x in made)
        branches = Branches.of(BRANCHES)
        states, _ = attend(torch.nn.Identity(), query, key, value, None, branches=branches)
        gradients = torch.autograd.grad(states, (query, key, value), towards.to(states))
        found.append([x.detach().cpu().float() for x in (states, *gradients)])
    for here, there in zip(*found, strict=True):
        assert (there - here).norm() / here.norm() < (1e-4 if dtype is torch.float32 else 2e-2)
