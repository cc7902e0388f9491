"""The real taskset `openenv` of verifiers plays a session of this server and sums its rewards."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

pytest.importorskip("openenv")
pytest.importorskip("verifiers")

from verifiers.v1 import EvalClientConfig, ModelContext
from verifiers.v1.env import RunSlot
from verifiers.v1.utils.loaders import load_environment, resolve_env_config

from openenv_kit import Served, serving
from verifiers_player import scripted_model

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]


def played(served: Served, model: str, **reset: Any) -> Any:
    """The trace of one episode, by the environment that verifiers ships."""
    config = resolve_env_config(
        {
            "taskset": {"id": "openenv", "base_url": served.url, "resets": [reset]},
            "player": {"harness": {"id": "verifiers_player"}, "runtime": {"type": "subprocess"}},
        }
    )
    client = EvalClientConfig(base_url=model, api_key_var="NO_KEY")

    async def play() -> Any:
        env = load_environment(config)
        (task,) = env.taskset
        async with env.serving():
            return await env.run_slot(RunSlot(task), ModelContext("scripted", client))

    episode = asyncio.run(play())
    assert episode.ok, episode.errors
    (trace,) = episode.traces
    return trace


def test_its_own_environment_plays_a_session_and_sums_the_rewards_of_lines() -> None:
    """-0.1 for the name that there is not, 1 for the answer; indented lines come as JSON."""
    with serving() as served:
        index = next(
            at for at in range(20) if served.problems.get("train", at).meta["family"] == "modular"
        )
        answer = served.problems.get("train", index).meta["answer"]
        replies = [
            "undefined",
            "def f():",
            json.dumps({"line": f"    return {answer}"}),
            json.dumps({"line": ""}),
            "submit_final_answer(f())",
        ]
        lines = [json.loads(one)["line"] if one[0] == "{" else one for one in replies]
        prompt, steps, scored = served.direct(lines, index=index, seed=3)
        with scripted_model(replies) as (model, heard):
            trace = played(served, model, split="train", index=index, seed=3)
        assert served.all_kernels_are_freed()
    said = [json.loads(one)["observation"]["text"] for one in heard]
    assert said == [prompt, *(step.observation for step in steps[:-1])]
    assert trace.reward == pytest.approx(scored.reward.total)
    assert trace.reward == pytest.approx(0.9)
