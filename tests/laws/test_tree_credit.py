"""A group that branches climbs the mean outcome: all trees of a small world, added up.

A world of at most three lines, `n` or the last one `s`. Its policy is another after every history.
Every tree that coins and policy can grow is counted with its probability. Nothing is sampled.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from credit_kit import sibling, tree_advantages
from repl_rl.config.sections import GRPOConfig
from repl_rl.credit.advantages import advantage_rows, batch_scale, load_credit
from repl_rl.records import Branch, OutcomeKind, Reward, Scored, Trajectory
from trainer_kit import Step, Tensors, difference, largest, random_qwen

NUM_LINES = 3
OUTCOMES = {"s": -0.4, "ns": 1.0, "nns": 0.3, "nnn": -1.0}
GO_ON = {"": 0.7, "n": 0.45, "nn": 0.2}
"""How likely `n` is after a history."""
COIN = 0.5
"""How likely a state is left."""
UNSCALED = batch_scale([], "none")

Gradient = dict[str, float]
"""By history: the derivative by the logit of `n`."""


@dataclass(frozen=True)
class Leaf:
    slot: int
    world: str
    branch: Branch | None
    start: int
    """The last state on its way that was left."""


def completions(history: str) -> Iterator[tuple[float, str]]:
    """Completions of a history, with their probabilities."""
    if history.endswith("s") or len(history) == NUM_LINES:
        yield 1.0, history
        return
    for action, p in (("n", GO_ON[history]), ("s", 1 - GO_ON[history])):
        for rest, world in completions(history + action):
            yield p * rest, world


def places(leaf: Leaf) -> Iterator[tuple[float, int | None]]:
    """Places where it is left, with the coins' probability."""
    p = 1.0
    for at in range(leaf.start + 1, len(leaf.world)):
        yield p * COIN, at
        p *= 1 - COIN
    yield p, None


def left(leaf: Leaf, factor: int, stride: int) -> Iterator[tuple[float, list[Leaf]]]:
    """A leaf, and those that leave it."""
    for p, at in places(leaf):
        if at is None:
            yield p, [Leaf(leaf.slot, leaf.world, leaf.branch, len(leaf.world))]
            continue
        branch = Branch(sibling_index=leaf.slot, num_lines=at, seed=0)
        stay = Leaf(leaf.slot, leaf.world, leaf.branch, at)
        options = [list(completions(leaf.world[:at]))] * (factor - 1)
        for chosen in itertools.product(*options):
            others = [
                Leaf(leaf.slot + stride * i, world, branch, at)
                for i, (_, world) in enumerate(chosen, 1)
            ]
            yield p * math.prod(q for q, _ in chosen), [stay, *others]


def trees(factors: list[int]) -> Iterator[tuple[float, list[Leaf]]]:
    strides = [math.prod(factors[i + 1 :]) for i in range(len(factors))]
    grown: list[tuple[float, list[Leaf]]] = []
    for chosen in itertools.product(completions(""), repeat=factors[0]):
        leaves = [Leaf(strides[0] * i, world, None, 0) for i, (_, world) in enumerate(chosen)]
        grown.append((math.prod(p for p, _ in chosen), leaves))
    for factor, stride in zip(factors[1:], strides[1:], strict=True):
        grown = [
            (p * math.prod(q for q, _ in parts), [leaf for _, some in parts for leaf in some])
            for p, leaves in grown
            for parts in itertools.product(*(list(left(one, factor, stride)) for one in leaves))
        ]
    yield from grown


def add_score(into: Gradient, world: str, line: int, factor: float) -> None:
    """Add `factor` times the derivative of the log-probability of a line."""
    history = world[:line]
    into[history] = into.get(history, 0.0) + factor * ((world[line] == "n") - GO_ON[history])


def expected(value: dict[str, float]) -> Gradient:
    total: Gradient = {}
    for p, world in completions(""):
        for line in range(len(world)):
            add_score(total, world, line, p * value[world])
    return total


def reward(world: str, *, charge: float = 0.0) -> Reward:
    lines = tuple(charge * (a == "n") for a in world)
    return Reward(line_rewards=lines, outcome_reward=OUTCOMES[world])


def rows(
    leaves: list[Leaf], *, weight: float = 0.0, branching: Sequence[int] = ()
) -> list[list[float]]:
    return tree_advantages(
        [sibling(leaf.slot, leaf.branch, reward(leaf.world, charge=-0.1)) for leaf in leaves],
        weight=weight,
        branching=branching,
        scale_by=UNSCALED,
    )


@pytest.mark.parametrize("factors", [[2], [2, 2], [2, 3], [3, 2], [2, 2, 2]])
def test_the_expected_update_is_the_gradient_of_the_mean_outcome(factors: list[int]) -> None:
    """Wherever somebody leaves, and however few there are in the end: groups of more leaves weigh
    no more, though these are the ones of long trajectories. What it is divided by is the same for
    all groups.
    """
    total: Gradient = {}
    mass = 0.0
    for p, leaves in trees(factors):
        mass += p
        for leaf, row in zip(leaves, rows(leaves, branching=factors), strict=True):
            for line, value in enumerate(row):
                if value:
                    add_score(total, leaf.world, line, p * value / math.prod(factors))
    assert mass == pytest.approx(1.0, abs=1e-12)
    aim = expected(OUTCOMES)
    assert set(aim) == set(GO_ON)
    for history, value in aim.items():
        assert total[history] == pytest.approx(value, abs=1e-12), history
    assert max(map(abs, aim.values())) > 0.05


@pytest.mark.parametrize("factors", [[2, 2], [2, 3], [2, 2, 2]])
def test_the_mean_over_ends_by_their_shares_is_that_of_rollouts(
    factors: list[int],
    make_trajectory: Callable[..., Trajectory],
    make_scored: Callable[..., Scored],
) -> None:
    """That over all ends alike is another, as long trajectories are left more often."""
    credit = load_credit(GRPOConfig(credit="tree"))
    by_share = alike = 0.0
    for p, leaves in trees(factors):
        scored = []
        for leaf in leaves:
            lines = [(" a\n", OutcomeKind.OK_OUTPUT, ">>>")] * len(leaf.world)
            one = make_trajectory(lines, sibling_index=leaf.slot)
            scored.append(make_scored(replace(one, branch=leaf.branch), OUTCOMES[leaf.world]))
        outcomes = [OUTCOMES[leaf.world] for leaf in leaves]
        weighed = map(math.prod, zip(credit.shares(scored), outcomes, strict=True))
        by_share += p * math.fsum(weighed) / factors[0]
        alike += p * sum(outcomes) / len(outcomes)
    mean = sum(p * OUTCOMES[world] for p, world in completions(""))
    assert by_share == pytest.approx(mean, abs=1e-12)
    assert abs(alike - mean) > 0.005


def test_a_place_that_depends_on_what_follows_it_is_another_gradient() -> None:
    """Left at its last line but one, a trajectory is left where it went wrong."""
    total: Gradient = {}
    for p, roots in trees([2]):
        options = []
        for leaf in roots:
            at = len(leaf.world) - 1
            branch = Branch(sibling_index=leaf.slot, num_lines=at, seed=0)
            options.append(
                [
                    (q, [leaf, Leaf(leaf.slot + 2, world, branch, at)])
                    for q, world in completions(leaf.world[:at])
                ]
                if at
                else [(1.0, [leaf])]
            )
        for parts in itertools.product(*options):
            leaves = [one for _, some in parts for one in some]
            chance = p * math.prod(q for q, _ in parts)
            for leaf, row in zip(leaves, rows(leaves), strict=True):
                for line, value in enumerate(row):
                    add_score(total, leaf.world, line, chance * value / 2)
    aim = expected(OUTCOMES)
    assert max(abs(total[history] - aim[history]) for history in aim) > 0.01


def test_lines_that_are_copies_count_for_nothing() -> None:
    """Weights of what begins at the prompt are 1, and are shared out from there on down."""
    credit = load_credit(GRPOConfig(credit="tree"))
    for _, leaves in trees([2, 2]):
        siblings = [sibling(leaf.slot, leaf.branch, reward(leaf.world)) for leaf in leaves]
        found = credit.line_weights(siblings)
        for leaf, weights, row in zip(leaves, found, rows(leaves, weight=1.0), strict=True):
            own = 0 if leaf.branch is None else leaf.branch.num_lines
            assert weights[:own] == row[:own] == [0.0] * own
            assert all(weights[own:])
        first = [w[0] for leaf, w in zip(leaves, found, strict=True) if not leaf.branch]
        assert first == [1.0, 1.0]


@given(
    outcome=st.sampled_from([1.0, -1.0, 0.0]),
    charges=st.lists(st.sampled_from([0.0, -0.1, -0.3]), min_size=2, max_size=4),
    count=st.integers(1, 5),
)
def test_identical_siblings_get_exactly_nothing(
    outcome: float, charges: list[float], count: int
) -> None:
    same = Reward(line_rewards=tuple(charges), outcome_reward=outcome)
    left_at = [None, *(Branch(sibling_index=0, num_lines=1, seed=i) for i in range(count))]
    items = [sibling(i, branch, same) for i, branch in enumerate(left_at)]
    assert tree_advantages(items, weight=0.5) == [[0.0] * len(charges)] * len(items)


def test_one_that_stands_again_counts_once() -> None:
    one, other = reward("ns"), reward("nnn")
    once = [sibling(0, None, one), sibling(2, None, other)]
    again = [once[0], once[0], once[1], once[1]]
    first, second = tree_advantages(once, weight=0.5)
    assert tree_advantages(again, weight=0.5) == [first, [0.0] * 2, second, [0.0] * 3]


def test_one_that_stands_again_counts_once_in_the_deviation_of_a_step(
    make_trajectory: Callable[..., Trajectory], make_scored: Callable[..., Scored]
) -> None:
    credit = load_credit(GRPOConfig(credit="tree", scale="batch"))
    once = []
    for group in range(2):
        for place, world in enumerate(["ns", "nnn"]):
            lines = [(" a\n", OutcomeKind.OK_OUTPUT, None)] * len(world)
            made = make_trajectory(lines, group_index=group, sibling_index=place)
            once.append(make_scored(made, OUTCOMES[world]))
    rows = advantage_rows(once, credit)
    nothing = [0.0] * len(rows[3])
    assert advantage_rows([*once, once[3], once[3]], credit) == [*rows, nothing, nothing]


def test_one_without_an_outcome_is_part_of_no_value() -> None:
    """It left the first after a line. What is left of the tree are two trajectories."""
    lost = sibling(
        1, Branch(sibling_index=0, num_lines=1, seed=0),
        Reward(line_rewards=(0.0, 0.0), outcome_reward=None),
    )  # fmt: skip
    items = [sibling(0, None, reward("ns")), lost, sibling(2, None, reward("s"))]
    found = tree_advantages(items, weight=0.0, scale_by=UNSCALED)
    assert found == [pytest.approx([1.4, 1.4]), [0.0, 0.0], pytest.approx([-1.4])]


# The update


def policy_gradient(
    model: Any, scored: list[Scored], config: GRPOConfig, *, divisor: int
) -> Tensors:
    """Gradient of minus advantage times log-probability over the tokens that each sampled itself,
    divided by `divisor`."""
    loss: Any = 0.0
    rows = advantage_rows(scored, load_credit(config))
    for item, row in zip(scored, rows, strict=True):
        one = item.trajectory
        ids = torch.tensor(one.prompt_ids + one.completion_ids)
        scores = torch.log_softmax(model(ids[None]).logits[0, :-1], -1)
        logprobs = scores.gather(1, ids[1:, None])[len(one.prompt_ids) - 1 :, 0]
        own = torch.tensor(one.loss_mask)
        own[: one.num_copied] = False
        loss = loss - (torch.tensor(row) * logprobs)[own].sum()
    (loss / divisor).backward()
    return {name: w.grad for name, w in model.named_parameters() if w.grad is not None}


@pytest.mark.train
@pytest.mark.parametrize(
    ("loss_type", "divisor"),
    [("dapo", 25), ("cispo", 25), ("dr_grpo", 4 * 64), ("luspo", 4)],
)
def test_a_token_is_trained_once_however_many_share_it(
    loss_type: str,
    divisor: int,
    step: Step,
    model_folder: Path,
    make_trajectory: Callable[..., Trajectory],
    make_scored: Callable[..., Scored],
) -> None:
    """Four rows: 1 leaves 0 after a line, 2 stands in the last row again.

    Lines of 5 tokens for two rollouts of four, of 6 and of 3 for one each, and of 3 for two: 25
    tokens in four rollouts. 64 is `sampling.max_tokens`.
    """
    ok = OutcomeKind.OK_OUTPUT
    shared = (" a+1\n", ok, "2\n>>>")
    first = make_trajectory([shared, (" f(2)\n", ok, "[3]\n>>>")], sibling_index=0)
    left_at = Branch(sibling_index=0, num_lines=1, seed=3)
    second = make_trajectory([shared, (" g\n", ok, ">>>")], sibling_index=1)
    third = make_scored(make_trajectory([(" b\n", ok, None)], sibling_index=2), -0.6, (-0.1,))
    distinct = [
        make_scored(first, 1.0, (0.0, -0.1)),
        make_scored(replace(second, branch=left_at), 0.0, (0.0, 0.0)),
        third,
    ]
    config = GRPOConfig(credit="tree", branching=(2, 2))
    catch = step(
        [*distinct, third],
        credit=config.credit,
        branching=config.branching,
        loss_type=loss_type,
    )
    model = type(random_qwen()).from_pretrained(model_folder)
    expected = policy_gradient(model, distinct, config, divisor=divisor)
    assert difference(catch.gradients, expected) < 1e-5 * largest(expected)
