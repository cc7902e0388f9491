"""Each credit mode climbs what its docstring says: all groups of a small world, added up.

A world of at most three lines: an error (e), nothing new (n) or a submission (s), which is right
after `n` alone. Its policy is a softmax for every history, its gradients are sums over all
trajectories, and the expected update is a sum over all groups of siblings. Nothing is sampled.
"""

from __future__ import annotations

import itertools
import math
import random
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import get_args

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from credit_kit import CREDITS, line_advantages
from repl_rl.config.sections import Baseline, GRPOConfig, Scale
from repl_rl.credit.advantages import advantage_rows, batch_scale, load_credit
from repl_rl.records import OutcomeKind, Reward, Scored, Trajectory

ACTIONS = "ens"
NUM_LINES = 3
G = 3
WEIGHT = 0.5

Gradient = dict[tuple[str, str], float]
"""(history, action) -> derivative by that logit."""


def policy(history: str) -> dict[str, float]:
    """A different distribution after every history, none of them near 0 or 1."""
    weights = {a: 1 + (7 * len(history) + 3 * i + ord(a)) % 4 for i, a in enumerate(ACTIONS)}
    if history.endswith("e"):
        weights["e"] += 3  # errors bring errors: what a line does matters to those after it
    return {a: w / sum(weights.values()) for a, w in weights.items()}


def worlds(history: str = "") -> Iterator[str]:
    """Every trajectory there is, as the string of its actions: 15."""
    if history.endswith("s") or len(history) == NUM_LINES:
        yield history
        return
    for action in ACTIONS:
        yield from worlds(history + action)


WORLDS = list(worlds())


def reward_of(world: str) -> Reward:
    """An error costs 0.3, and 0.1 more each time; a right answer pays 1, silence costs 0.6."""
    lines = tuple(-0.3 - 0.1 * k if a == "e" else 0.0 for k, a in enumerate(world))
    outcome = float("n" in world) if world.endswith("s") else -0.6
    return Reward(line_rewards=lines, outcome_reward=outcome)


REWARDS = {world: reward_of(world) for world in WORLDS}


def probability(world: str) -> float:
    return math.prod(policy(world[:k])[a] for k, a in enumerate(world))


def add_score(into: Gradient, world: str, k: int, factor: float) -> None:
    """Add `factor` times the gradient of the log-probability of line k."""
    for action, p in policy(world[:k]).items():
        key = (world[:k], action)
        into[key] = into.get(key, 0.0) + factor * ((action == world[k]) - p)


def gradient_of(credit: Callable[[str, int], float]) -> Gradient:
    """The sum of credit(world, k) times the score of line k, expected over trajectories."""
    total: Gradient = {}
    for world in WORLDS:
        for k in range(len(world)):
            add_score(total, world, k, probability(world) * credit(world, k))
    return total


def outcome(world: str) -> float:
    value = REWARDS[world].outcome_reward
    assert value is not None
    return value


def charge(world: str) -> float:
    return math.fsum(REWARDS[world].line_rewards)


OUTCOME = gradient_of(lambda world, _: outcome(world))
"""The gradient of E[R]."""
CHARGE = gradient_of(lambda world, _: charge(world))
"""The gradient of E[sum r]."""
LOCAL = gradient_of(lambda world, k: REWARDS[world].line_rewards[k])
"""The gradient of E[sum r], were no line to answer for those after it."""

Advantages = Callable[[Sequence[Reward]], list[list[float]]]


def update(advantages: Advantages, *, size: int = G) -> Gradient:
    """The mean over siblings of advantage times score, expected over all groups."""
    chances = {world: probability(world) for world in WORLDS}
    factors: defaultdict[tuple[str, int], float] = defaultdict(float)
    for group in itertools.product(WORLDS, repeat=size):
        p = math.prod(chances[world] for world in group)
        for world, lines in zip(group, advantages([REWARDS[w] for w in group]), strict=True):
            for k, value in enumerate(lines):
                factors[world, k] += p * value / size
    total: Gradient = {}
    for (world, k), factor in factors.items():
        add_score(total, world, k, factor)
    return total


def unscaled(credit: str, baseline: Baseline) -> Advantages:
    scale_by = batch_scale([], "none")
    return lambda group: line_advantages(
        group, credit=credit, weight=WEIGHT, baseline=baseline, scale_by=scale_by
    )


def mix(*parts: tuple[float, Gradient]) -> Gradient:
    keys = {key for _, part in parts for key in part}
    return {key: math.fsum(f * part.get(key, 0.0) for f, part in parts) for key in keys}


def assert_same(one: Gradient, other: Gradient) -> None:
    for key in one.keys() | other.keys():
        assert one.get(key, 0.0) == pytest.approx(other.get(key, 0.0), abs=1e-12), key


def largest(gradient: Gradient) -> float:
    return max(map(abs, gradient.values()))


def test_the_world_is_whole() -> None:
    assert len(WORLDS) == 15
    assert math.fsum(map(probability, WORLDS)) == pytest.approx(1.0)


def test_a_true_gradient_is_the_slope_of_its_objective(monkeypatch: pytest.MonkeyPatch) -> None:
    """By central differences in one logit: 1e-6 up and down."""
    plain = policy

    def value(step: float) -> float:
        def moved(history: str) -> dict[str, float]:
            found = dict(plain(history))
            if history == "e":
                found["e"] *= math.exp(step)
            return {a: p / sum(found.values()) for a, p in found.items()}

        monkeypatch.setitem(globals(), "policy", moved)
        return math.fsum(probability(world) * charge(world) for world in WORLDS)

    slope = (value(1e-6) - value(-1e-6)) / 2e-6
    assert slope == pytest.approx(CHARGE["e", "e"], abs=1e-8)
    assert abs(slope) > 0.01


# What each mode climbs

OBJECTIVE = {
    "outcome": OUTCOME,
    "return_to_go": mix((1.0, OUTCOME), (WEIGHT, CHARGE)),
    "potential": OUTCOME,
}


@pytest.mark.parametrize("credit", OBJECTIVE)
def test_with_leave_one_out_the_expected_update_is_the_gradient(credit: str) -> None:
    assert_same(update(unscaled(credit, "leave_one_out")), OBJECTIVE[credit])


@pytest.mark.parametrize("size", [2, 3])
@pytest.mark.parametrize("credit", OBJECTIVE)
def test_with_the_mean_it_is_smaller_by_its_own_share(credit: str, size: int) -> None:
    found = update(unscaled(credit, "mean"), size=size)
    assert_same(found, mix(((size - 1) / size, OBJECTIVE[credit])))


def silenced(group: Sequence[Reward]) -> bool:
    """Equal outcomes and equal sums of line rewards."""
    sums = {(r.outcome_reward, round(math.fsum(r.line_rewards), 9)) for r in group}
    return len(sums) == 1


def local_of_the_silenced(group: Sequence[Reward]) -> list[list[float]]:
    """The leave-one-out credit of lines in groups that say nothing, which goes unused."""
    if not silenced(group):
        return [[0.0] * len(reward.line_rewards) for reward in group]
    found = []
    for i, reward in enumerate(group):
        others = [r for j, one in enumerate(group) if j != i for r in one.line_rewards]
        mean = math.fsum(others) / len(others)
        found.append([r - mean for r in reward.line_rewards])
    return found


def test_local_credit_misses_later_errors_and_silent_groups_and_nothing_else() -> None:
    missing = update(local_of_the_silenced)
    expected = mix((1.0, OUTCOME), (WEIGHT, LOCAL), (-WEIGHT, missing))
    assert_same(update(unscaled("line_local", "leave_one_out")), expected)
    assert largest(missing) > 1e-5


def test_local_credit_is_not_the_gradient_of_what_lines_cost() -> None:
    """It misses the errors that a line brings about, which are of the size of what it sees."""
    assert largest(mix((1.0, LOCAL), (-1.0, CHARGE))) > 0.3 * largest(CHARGE)


def test_a_mean_over_own_lines_takes_its_share_of_the_gradient(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All trajectories of two lines: 1 / (G L) = 1/6 of the gradient of E[sum r] is gone."""
    name = globals()
    pairs = ["".join(pair) for pair in itertools.product("en", repeat=2)]
    monkeypatch.setitem(name, "ACTIONS", "en")
    monkeypatch.setitem(name, "WORLDS", pairs)
    # An outcome of its own for each, so that only identical groups say nothing.
    made = {
        w: Reward(line_rewards=reward_of(w).line_rewards, outcome_reward=i / 4)
        for i, w in enumerate(pairs)
    }
    monkeypatch.setitem(name, "REWARDS", made)
    local = gradient_of(lambda world, k: REWARDS[world].line_rewards[k])
    full = gradient_of(lambda world, _: charge(world))
    climbed = gradient_of(lambda world, _: outcome(world))
    missing = update(centred_if_silenced)
    found = update(unscaled("line_local", "mean"))
    assert_same(
        found,
        mix((2 / 3, climbed), (WEIGHT, local), (-WEIGHT / 6, full), (-WEIGHT, missing)),
    )


def centred_if_silenced(group: Sequence[Reward]) -> list[list[float]]:
    lines = [r for reward in group for r in reward.line_rewards]
    mean = math.fsum(lines) / len(lines) if silenced(group) else 0.0
    use = 1.0 if silenced(group) else 0.0
    return [[use * (r - mean) for r in reward.line_rewards] for reward in group]


# What is not done


def normalised_by_index(group: Sequence[Reward]) -> list[list[float]]:
    """Each r centred on the siblings that have a line k, and summed from there on."""
    means = []
    for k in range(NUM_LINES):
        column = [reward.line_rewards[k] for reward in group if k < len(reward.line_rewards)]
        means.append(math.fsum(column) / len(column) if column else 0.0)
    return [
        [
            math.fsum(r - b for r, b in zip(reward.line_rewards[k:], means[k:], strict=False))
            for k in range(len(reward.line_rewards))
        ]
        for reward in group
    ]


def test_a_mean_per_line_index_pays_for_one_more_turn() -> None:
    """Submitting at once is charged nothing. Its push is 0.022, where 0.075 is fair."""
    fair = mix(((G - 1) / G, CHARGE))["", "s"]
    assert fair == pytest.approx(0.0753, abs=1e-4)
    assert update(normalised_by_index)["", "s"] == pytest.approx(0.0222, abs=1e-4)


# Every mode

MODES = list(itertools.product(CREDITS, get_args(Baseline)))
"""Of siblings that do not branch: see `test_tree_credit`."""

rewards = st.builds(
    lambda outcome, lines: Reward(line_rewards=tuple(lines), outcome_reward=outcome),
    st.none() | st.sampled_from([1.0, 0.8, 0.0, -0.1, -0.6]),
    st.lists(st.sampled_from([0.0, -0.05, -0.1, -0.3, -0.4, 0.2]), min_size=1, max_size=5),
)
groups = st.lists(rewards, min_size=1, max_size=6)
few = settings(max_examples=40)
"""Of each mode and baseline, hundreds in sum."""


def of(credit: str, baseline: Baseline, group: Sequence[Reward]) -> list[list[float]]:
    return line_advantages(group, credit=credit, weight=WEIGHT, baseline=baseline)


@pytest.mark.parametrize(("credit", "baseline"), MODES)
@given(one=rewards, count=st.integers(1, 8))
def test_identical_siblings_get_exactly_nothing(
    credit: str, baseline: Baseline, one: Reward, count: int
) -> None:
    assert of(credit, baseline, [one] * count) == [[0.0] * len(one.line_rewards)] * count


@pytest.mark.parametrize(("credit", "baseline"), MODES)
@few
@given(group=groups, rng=st.randoms(use_true_random=False))
def test_advantages_follow_their_siblings(
    credit: str, baseline: Baseline, group: list[Reward], rng: random.Random
) -> None:
    order = list(range(len(group)))
    rng.shuffle(order)
    plain, shuffled = of(credit, baseline, group), of(credit, baseline, [group[i] for i in order])
    assert [pytest.approx(plain[i], abs=1e-12) for i in order] == shuffled


@pytest.mark.parametrize(("credit", "baseline"), MODES)
@few
@given(group=groups, at=st.integers(0, 6), lines=st.lists(st.floats(-9, 9), max_size=4))
def test_an_unscorable_sibling_gets_nothing_and_changes_nobody(
    credit: str, baseline: Baseline, group: list[Reward], at: int, lines: list[float]
) -> None:
    at = min(at, len(group))
    unscorable = Reward(line_rewards=tuple(lines), outcome_reward=None)
    found = of(credit, baseline, [*group[:at], unscorable, *group[at:]])
    assert found.pop(at) == [0.0] * len(lines)
    assert found == of(credit, baseline, group)


@pytest.mark.parametrize(("credit", "baseline"), MODES)
@given(group=groups)
def test_weight_zero_is_plain_grpo_in_every_mode(
    credit: str, baseline: Baseline, group: list[Reward]
) -> None:
    found = line_advantages(group, credit=credit, weight=0.0, baseline=baseline)
    assert found == of("outcome", baseline, group)


OK = OutcomeKind.OK_OUTPUT


@pytest.mark.parametrize("scale", get_args(Scale))
@pytest.mark.parametrize(("credit", "baseline"), MODES)
def test_an_observation_changes_no_advantage(
    credit: str,
    baseline: Baseline,
    scale: Scale,
    make_trajectory: Callable[..., Trajectory],
    make_scored: Callable[..., Scored],
) -> None:
    def on_lines(seen: str | None) -> list[list[float]]:
        first = make_trajectory([("a\n", OK, seen), ("b\n", OK, None), ("c\n", OK, seen)])
        other = make_trajectory([("d\n", OK, None), ("e\n", OK, seen)])
        scored = [
            make_scored(first, 1.0, [-0.3, 0.0, -0.1]),
            make_scored(other, 0.0, [0.0, -0.3]),
        ]
        config = GRPOConfig(credit=credit, baseline=baseline, scale=scale)
        rows = advantage_rows(scored, load_credit(config))
        return [
            [row[line.start] for line in item.trajectory.lines]
            for item, row in zip(scored, rows, strict=True)
        ]

    assert on_lines(None) == on_lines("12345\n>>>") == on_lines("a\nlong\nstory\n>>>")
