"""A session of `repl-rl serve-env` for TRL's stock trainer and a chat model that calls tools.

    GRPOTrainer(model, train_dataset=rows, environment_factory=ReplSession, args=...)

Each row has the columns `prompt`, `split` and `index`. Rewards of lines are summed: TRL takes one
number for a rollout.
"""

from __future__ import annotations

from openenv import GenericEnvClient

URL = "http://127.0.0.1:8000"


class ReplSession:
    def __init__(self) -> None:
        self._client = GenericEnvClient(base_url=URL).sync()

    def reset(self, split: str, index: int, **_: object) -> str:
        self._rewards: list[float | None] = []
        self._is_over = False
        return str(self._client.reset(split=split, index=index).observation["text"])

    def run_line(self, line: str) -> str:
        """Run a line of Python.

        Args:
            line: One line, without its newline.
        """
        return self._step(line=line)

    def get_reward(self) -> float | None:
        if not self._is_over:  # the model has stopped without an answer
            self._step(line="", end=True)
        if self._rewards[-1] is None:
            return None  # nobody could judge the answer, so TRL is to leave the rollout out
        # A reward function of the server's own gives None to all lines before the last.
        return sum(one for one in self._rewards if one is not None)

    def _step(self, **action: object) -> str:
        result = self._client.step(action)
        self._rewards.append(result.reward)
        self._is_over = result.done
        return str(result.observation["text"])
