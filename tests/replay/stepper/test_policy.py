"""A policy that goes on from where one stands, and what of it is saved."""

from collections.abc import Callable
from pathlib import Path

import pytest

from referee_kit import PROMPT, referee_of
from repl_rl.errors import ConfigError, EngineError
from repl_rl.records import Line, Origin, Scored, StopReason, Trajectory
from repl_rl.runs.trajectory_file import places
from repl_rl.viewer.replay.branch import Referee
from repl_rl.viewer.replay.live import Live
from repl_rl.viewer.stepper import Stepper
from repl_sandbox.fake import FakeKernels
from stepper_seat import ANSWERS, SCENE, MakeStepper, Seat, WritesLines, after, sit

pytestmark = pytest.mark.slow


def test_a_policy_goes_on_from_here_and_is_scored_at_its_end(stepper: MakeStepper) -> None:
    rows = after(stepper(policy=WritesLines("1+1", "y")), "n", "m")
    assert "line 3*" in rows[0]
    assert "here no answer -0.700" in rows[2]  # -0.6 and -0.1
    assert any("the policy ended: max_lines" in row for row in rows)


def test_without_a_policy_it_is_said_how_to_bring_one(stepper: MakeStepper) -> None:
    assert any("start with --model PATH" in row for row in after(stepper(), "m"))


@pytest.fixture
def brought(stepper: MakeStepper) -> tuple[Stepper, list[str]]:
    """A stepper that fails to bring its policy the first time, and what was brought so far."""
    made: list[str] = []

    async def bring() -> tuple[WritesLines, Referee]:
        made.append("policy")
        if len(made) == 1:
            raise ConfigError("these weights cannot be read")
        return WritesLines("1+1", "y"), referee_of(SCENE, FakeKernels(ANSWERS), {1: "23", 2: "22"})

    return stepper(bring=bring, prompt=PROMPT), made


def test_the_policy_of_a_run_is_brought_when_it_is_asked_for(
    brought: tuple[Stepper, list[str]],
) -> None:
    app, made = brought

    async def act(seat: Seat) -> None:
        await seat.press("n")
        assert made == []
        await seat.press("m")
        assert "these weights cannot be read" in seat.text
        await seat.press("m")
        assert "the policy ended: max_lines" in seat.text
        await seat.press("b", "b", "m")
        assert made == ["policy", "policy"]

    sit(app, act)


def test_what_judges_a_line_is_brought_with_the_policy(brought: tuple[Stepper, list[str]]) -> None:
    app, made = brought

    async def act(seat: Seat) -> None:
        await seat.press("n", "m", "n", "c")
        assert made == ["policy"]  # a number is asked for first
        await seat.write("2")
        assert "line 2 was worth +0.500" in seat.text

    sit(app, act)


def test_tokens_of_a_model_from_the_hub_have_the_texts_of_its_tokenizer(
    stepper: MakeStepper,
) -> None:
    rows = after(stepper(policy=WritesLines("1+1", source="owner/name")), "m", "t")
    assert [row.split()[2] for row in rows[4:7]] == ["'1'", "'+'", "'1'"]


Sampled = Callable[..., tuple[Scored, Origin]]


@pytest.fixture
def sampled(stepper: MakeStepper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Sampled:
    """Save what stands there after a policy went on and after these keys; (row, origin)."""
    monkeypatch.chdir(tmp_path)

    def make(
        *keys: str, by_hand: str | None = None, source: str | None = None
    ) -> tuple[Scored, Origin]:
        async def act(seat: Seat) -> None:
            await seat.press("n", "m", *keys)
            if by_hand is not None:
                await seat.write(by_hand)
                await seat.press("escape")
            await seat.press("w")
            await seat.write("b")

        sit(stepper(policy=WritesLines("1+1", "y", source=source)), act)
        [place] = places(tmp_path / "b")
        assert place.origin is not None
        return place.read(), place.origin

    return make


def test_what_a_policy_sampled_is_saved_as_it_ended_it(sampled: Sampled) -> None:
    scored, origin = sampled(source="some/model")
    trajectory = scored.trajectory
    assert trajectory.stop_reason is StopReason.MAX_LINES
    # The comment before it, ` 1+1` and ` y`, each with a newline: 9 + 5 + 3 bytes.
    assert trajectory.logprobs.count(-0.5) == 17
    assert origin.tokenizer == "some/model"


@pytest.mark.parametrize(("keys", "by_hand"), [("b", None), ("i", "x = 2"), ("bi", "y")])
def test_what_was_changed_after_a_policy_is_saved_in_bytes(
    sampled: Sampled, keys: str, by_hand: str | None
) -> None:
    scored, origin = sampled(*keys, by_hand=by_hand, source="some/model")
    assert -0.5 not in scored.trajectory.logprobs
    assert scored.trajectory.stop_reason is StopReason.EOS
    assert origin.tokenizer is None


class FailsLater(WritesLines):
    """It ends well once; after that its engine breaks in the middle."""

    async def continue_from(self, live: Live, *, on_line: Callable[[Line], None]) -> Trajectory:
        is_first = live.at == 1
        done = await super().continue_from(live, on_line=on_line)
        if not is_first:
            raise EngineError("the model's forward failed")
        return done


def test_lines_of_a_policy_that_failed_are_saved_with_those_before(
    stepper: MakeStepper, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)

    async def act(seat: Seat) -> None:
        await seat.press("n", "m", "m")
        assert "the model's forward failed" in seat.text
        await seat.press("w")
        await seat.write("b")

    sit(stepper(policy=FailsLater("1+1")), act)
    [place] = places(tmp_path / "b")
    assert [line.source for line in place.read().trajectory.lines] == [
        " # think\n",
        " 1+1\n",
        " 1+1\n",
    ]
