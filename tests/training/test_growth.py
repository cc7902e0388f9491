"""Groups that branch: who leaves whom, and what stands in slots that nobody fills."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import pytest

from repl_rl.config.sections import GRPOConfig
from repl_rl.credit.advantages import distinct, load_credit
from repl_rl.credit.base import More, Run
from repl_rl.credit.trees import grow
from repl_rl.records import Attempt, Branch, OutcomeKind, Problem, Scored, Trajectory

OK, SUBMITTED = OutcomeKind.OK_OUTPUT, OutcomeKind.SUBMITTED
MakeTrajectory = Callable[..., Trajectory]
MakeScored = Callable[..., Scored]
PROBLEM = Problem(id="p", statement="What is 1 + 1?")


def tree(*factors: int, chance: float = 0.5) -> GRPOConfig:
    return GRPOConfig(credit="tree", branching=factors, branch_probability=chance)


def attempts(size: int, *, seed: int = 0) -> list[Attempt]:
    return [
        Attempt(problem=PROBLEM, group_index=group, sibling_index=i, seed=1000 * seed + 10 * i)
        for group in (0, 1)
        for i in range(size)
    ]


@pytest.fixture
def run(make_trajectory: MakeTrajectory, make_scored: MakeScored) -> Callable[..., Run]:
    """`run(num_lines, source)`: rolls out so many lines like `source`; the last one submits.

    With `again`, slot 0 loses its kernel at the end and begins again, with lines like that.
    """

    def of_length(num_lines: int, source: str = " {}\n", again: str | None = None) -> Run:
        def make(attempts: Sequence[Attempt], *, more: More | None = None) -> list[Scored]:
            assert more is not None
            waiting, found = list(attempts), list[Scored]()
            while waiting:
                one = waiting.pop(0)
                made = rolled_out(one, source)
                own = one.stem.num_lines if one.stem else 0
                waiting += states(made, more, own=own)
                if again is not None and one.sibling_index == 0:
                    made = timed_otherwise(rolled_out(one, again))
                    waiting += states(made, more)
                found.append(make_scored(made, 0.0))
            assert distinct(found) == found, "nobody is rolled out twice"
            return found

        def rolled_out(one: Attempt, source: str) -> Trajectory:
            copied = one.stem.trajectory.lines[: one.stem.num_lines] if one.stem else ()
            sources = [line.source for line in copied]
            sources += [source.format(one.sibling_index)] * (num_lines - len(copied))
            kinds = [OK] * (num_lines - 1) + [SUBMITTED]
            plain = make_trajectory(
                [(text, kind, None) for text, kind in zip(sources, kinds, strict=True)],
                group_index=one.group_index,
                sibling_index=one.sibling_index,
            )
            if one.stem is None:
                return plain
            other = one.stem.trajectory
            assert other.group_index == one.group_index
            branch = Branch(
                sibling_index=other.sibling_index, num_lines=one.stem.num_lines, seed=one.seed
            )
            return replace(plain, branch=branch)

        return make

    return of_length


def timed_otherwise(trajectory: Trajectory) -> Trajectory:
    """Trajectory whose lines took another time."""
    lines = [
        replace(line, outcome=replace(line.outcome, wall_ms=line.outcome.wall_ms + 1))
        for line in trajectory.lines
    ]
    return replace(trajectory, lines=tuple(lines))


def states(trajectory: Trajectory, more: More, *, own: int = 0) -> list[Attempt]:
    """Attempts that leave it on its way, behind lines of its own."""
    places = range(own + 1, len(trajectory.lines))
    return [one for at in places for one in more(replace(trajectory, lines=trajectory.lines[:at]))]


def test_each_level_leaves_what_the_levels_before_have_made(run: Callable[..., Run]) -> None:
    """Trajectories have 60 lines, so that a coin takes one of them for sure: [2, 2, 3] of two
    groups."""
    rows = grow(attempts(12), tree(2, 2, 3), run(60))
    assert [one.trajectory.sibling_index for one in rows] == [*range(12)] * 2
    first = [one.trajectory for one in rows[:12]]
    parents = {
        0: None,
        6: None,
        3: 0,
        9: 6,
        **{slot + i: slot for slot in (0, 3, 6, 9) for i in (1, 2)},
    }
    for slot, parent in parents.items():
        branch = first[slot].branch
        assert (None if branch is None else branch.sibling_index) == parent
    for slot in (0, 3, 6, 9):
        last = [first[slot + i].branch for i in (1, 2)]
        assert last[0] is not None
        assert last[1] is not None
        assert last[0].num_lines == last[1].num_lines
        # Deeper than where the level before has left it.
        before = first[slot + 3 if slot in (0, 6) else slot].branch
        assert before is not None
        assert before.num_lines < last[0].num_lines


def test_the_same_seeds_are_left_at_the_same_lines(run: Callable[..., Run]) -> None:
    def branches(seed: int) -> list[Branch | None]:
        rows = grow(attempts(8, seed=seed), tree(4, 2), run(5))
        return [row.trajectory.branch for row in rows]

    assert branches(1) == branches(1)
    assert branches(1) != branches(2)


@pytest.mark.parametrize(
    ("chance", "first", "second"), [(0.5, 200, 100), (0.2, 80, 64), (1, 400, 0)]
)
def test_a_coin_takes_a_share_of_the_states(
    chance: float, first: int, second: int, run: Callable[..., Run]
) -> None:
    """400 of three lines: by 0.5 half are left after one line, a quarter after two."""
    counts = {1: 0, 2: 0, None: 0}
    for seed in range(100):
        for row in grow(attempts(4, seed=seed), tree(2, 2, chance=chance), run(3)):
            trajectory = row.trajectory
            if trajectory.sibling_index % 2 and trajectory.branch is not None:
                counts[trajectory.branch.num_lines] += 1
    assert counts[1] == pytest.approx(first, abs=40)
    assert counts[2] == pytest.approx(second, abs=40)


def test_one_that_ends_before_it_is_left_stands_for_all_that_would_leave_it(
    run: Callable[..., Run],
) -> None:
    rows = grow(attempts(8), tree(2, 2, 2), run(1))
    assert [row.trajectory.sibling_index for row in rows] == [0] * 4 + [4] * 4 + [0] * 4 + [4] * 4
    assert all(row is rows[0] for row in rows[:4])
    assert [one.trajectory.sibling_index for one in distinct(rows)] == [0, 4, 0, 4]
    found = load_credit(tree(2, 2, 2)).metrics(distinct(rows))
    assert found == {"group/leaves": 2.0, "group/stems_lost": 0}


def test_what_lost_its_stem_is_counted(run: Callable[..., Run]) -> None:
    """Trajectories have 60 lines, so that each group has 4 leaves; one of them began at the prompt
    after all."""
    rows = grow(attempts(4), tree(2, 2), run(60))
    lost = replace(rows[1], trajectory=replace(rows[1].trajectory, branch=None))
    found = load_credit(tree(2, 2)).metrics([rows[0], lost, *rows[2:]])
    assert found == {"group/leaves": 4.0, "group/stems_lost": 1}


@pytest.mark.parametrize(("again", "slots"), [(" 0\n", [0, 1, 2, 3]), (" z\n", [0, 0, 2, 3])])
def test_one_that_began_again_is_left_by_those_who_copied_lines_that_it_has(
    again: str, slots: list[int], run: Callable[..., Run]
) -> None:
    """Trajectories have 60 lines, so that each is left: where 0 writes others the second time, 1
    has no place."""
    rows = grow(attempts(4), tree(2, 2), run(60, again=again))
    assert [row.trajectory.sibling_index for row in rows] == slots * 2
