"""An update on a GPU is that of a CPU. `REPL_RL_TEST_DEVICE=cpu` runs this without one."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from device import DEVICE, on_device
from repl_rl.types import Scored

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
