"""The example of a loop around tinker: real kernels, tinker's types, clients that tests answer."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

tinker = pytest.importorskip("tinker")

import foreign_loop  # noqa: E402
import repl_rl as rr  # noqa: E402
from repl_rl.base.concurrency import derive_seed  # noqa: E402
from repl_rl.config.sections import SamplingConfig  # noqa: E402
from repl_rl.integrations.tinker import TinkerEngine  # noqa: E402
from repl_rl.rollout.runner import kernel_for  # noqa: E402
from repl_rl.tasks.base import make_prompt  # noqa: E402
from tinker_clients import AnsweringClient, come, response  # noqa: E402

pytestmark = pytest.mark.kernel

CODEC = rr.ByteCodec()
LOGPROB = -0.5
SCRIPTS = [(" undefined\n", " submit_final_answer(1)\n"), (" submit_final_answer(1)\n",)]
"""Of two siblings: the first has a line that fails, both say the same."""
SEEDS = {
    derive_seed(i, at): line for i, lines in enumerate(SCRIPTS) for at, line in enumerate(lines)
}
"""What is written for the seed of a line."""


class Trainer:
    """Part of a training client that the example uses, without weights."""

    def __init__(self, answer: Any = None) -> None:
        self.client = AnsweringClient(answer or self._write)
        self.steps: list[tuple[list[Any], dict[str, Any]]] = []
        self.num_updates = 0

    def _write(self, request: Any) -> Any:
        ids = CODEC.encode(SEEDS[request.sampling_params.seed])
        return response(ids, [LOGPROB] * len(ids))

    def save_weights_and_get_sampling_client(self) -> Any:
        return come(self.client)

    def forward_backward(self, data: list[Any], **options: Any) -> Any:
        self.steps.append((data, options))
        return come(None)

    def optim_step(self, _: Any) -> Any:
        self.num_updates += 1
        return come(None)


Taught = tuple[Trainer, list[list[int]]]


def trained(trainer: Trainer, *, steps: int = 1) -> list[list[int]]:
    """Ids that `LineSampler` makes of the same lines over the same client, one a sibling."""

    async def inside() -> list[list[int]]:
        async with rr.open_env("sympy-proofs") as env:
            await foreign_loop.train(env, trainer, CODEC, steps=steps, siblings=2)
            problem = next(env.plan.task.problems(rr.Split.TRAIN, seed=0))
            return [await sampled(env, trainer.client, problem, i) for i in range(2)]

    return asyncio.run(inside())


async def sampled(env: rr.Env, client: Any, problem: rr.Problem, sibling: int) -> list[int]:
    engine = TinkerEngine(client, CODEC, vocabulary=257, context_tokens=8192)
    sampler = rr.LineSampler(engine, CODEC, env.format, SamplingConfig(), context_tokens=8192)
    attempt = rr.Attempt(problem=problem, group_index=0, sibling_index=sibling, seed=sibling)
    kernel = await kernel_for(problem, env.kernels, seed=sibling)
    try:
        prompt = make_prompt(env.plan.task, problem, env.format)
        made = await sampler.sample(attempt, prompt, kernel)
    finally:
        await kernel.aclose()
    return [*made.prompt_ids, *made.completion_ids]


@pytest.fixture(scope="module")
def taught() -> Taught:
    """One step, and the ids."""
    trainer = Trainer()
    return trainer, trained(trainer)


def test_it_trains_on_the_trajectories_that_our_loop_makes(taught: Taught) -> None:
    trainer, expected = taught
    ((data, options),) = trainer.steps
    assert (options, trainer.num_updates) == ({"loss_fn": "importance_sampling"}, 1)
    for datum, ids in zip(data, expected, strict=True):
        targets = datum.loss_fn_inputs["target_tokens"].tolist()
        assert [*datum.model_input.to_ints(), targets[-1]] == ids
        assert targets == ids[1:]
    ended = "NameError: name 'undefined' is not defined\n>>> submit_final_answer(1)\n"
    assert CODEC.decode(expected[0]).endswith(ended)


def test_what_was_sampled_has_its_log_probability_and_what_was_printed_has_none(
    taught: Taught,
) -> None:
    for datum, lines in zip(taught[0].steps[0][0], SCRIPTS, strict=True):
        logprobs = datum.loss_fn_inputs["logprobs"].tolist()
        assert set(logprobs) == {0.0, LOGPROB}
        assert logprobs.count(LOGPROB) == len("".join(lines))


def test_only_the_line_that_failed_is_pushed_down(taught: Taught) -> None:
    """Rewards -0.1, 0 and 0 under a mean of -1/30; half of what is left, outcomes being equal."""
    data = taught[0].steps[0][0]
    failed, rest = len(SCRIPTS[0][0]), len(SCRIPTS[0][1])
    first, second = (
        [value for value in one.loss_fn_inputs["advantages"].tolist() if value] for one in data
    )
    assert first == pytest.approx([-1 / 30] * failed + [1 / 60] * rest)
    assert second == pytest.approx([1 / 60] * rest)


def test_each_step_asks_for_the_weights_of_the_one_before() -> None:
    trainer = Trainer()
    trained(trainer, steps=2)
    assert (len(trainer.steps), trainer.num_updates) == (2, 2)


def test_when_a_client_goes_away_its_error_comes_out_and_every_kernel_is_given_back() -> None:
    """It goes away for the second sibling alone: had both asked in vain, both errors came out."""

    def go(request: Any) -> Any:
        if request.sampling_params.seed == derive_seed(1, 0):
            return tinker.TinkerError("gone")
        return trainer._write(request)

    trainer = Trainer(go)

    async def inside() -> tuple[ExceptionGroup[Any], list[bool]]:
        async with rr.open_env("sympy-proofs") as env:
            with pytest.raises(ExceptionGroup) as caught:
                await foreign_loop.train(env, trainer, CODEC, steps=1, siblings=2)
            return caught.value, [kernel.is_closed for kernel in env.kernels._kernels]

    caught, closed = asyncio.run(inside())
    assert [str(error) for error in caught.exceptions] == ["gone"]
    assert closed
    assert all(closed)


def test_what_it_asks_of_tinker_is_there() -> None:
    trainer = tinker.TrainingClient
    inspect.signature(tinker.ServiceClient.create_lora_training_client).bind(None, base_model="m")
    inspect.signature(trainer.save_weights_and_get_sampling_client).bind(None)
    inspect.signature(trainer.forward_backward).bind(None, [], loss_fn="importance_sampling")
    inspect.signature(trainer.optim_step).bind(None, tinker.AdamParams(learning_rate=1e-5))
    inspect.signature(trainer.get_tokenizer).bind(None)
