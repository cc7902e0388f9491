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
        self._reward, self._is_over = 0.0, False
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
        return self._reward

    def _step(self, **action: object) -> str:
        result = self._client.step(action)
        self._is_over = result.done
        if result.reward is None:  # nobody could judge the answer
            self._reward = None
        else:
            self._reward += result.reward
        return str(result.observation["text"])
