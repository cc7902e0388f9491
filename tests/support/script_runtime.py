"""A runtime for scripts: kernels that answer by heart, and a grader that knows the answers."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from repl_rl.rollout.plan import Plan
from repl_rl.rollout.runner import RolloutRunner
from repl_rl.rollout.sampler import ScriptSampler
from repl_rl.rollout.scoring import Scorer
from repl_rl.transcript.format import PYTHON
from repl_rl.transcript.tokens import ByteCodec
from repl_rl.update.ranks import ALONE
from repl_sandbox.fake import FakeKernels
from repl_sandbox.types import Execution


class ScriptRuntime:
    """Parts of a `Runtime` that a script needs. `answers` are a kernel's, by line."""

    context_tokens = 4096
    ranks = ALONE

    def __init__(
        self, plan: Plan, answers: Mapping[str, Execution], *, judge: Any, reward: Any
    ) -> None:
        self.plan = plan
        self.env = SimpleNamespace(format=PYTHON, setup=())
        self.loaded = SimpleNamespace(codec=ByteCodec())
        self._answers, self._judge, self._reward = answers, judge, reward

    def sampling_by(self, sampler: ScriptSampler) -> Any:
        runner = RolloutRunner(
            task=self.plan.task,
            fmt=PYTHON,
            sampler=sampler,
            kernels=FakeKernels(self._answers),
            scorer=Scorer(task_spec="", judge=self._judge, reward=self._reward),
            max_in_flight=2,
        )
        return SimpleNamespace(run=lambda *args, **kwargs: asyncio.run(runner.run(*args, **kwargs)))
