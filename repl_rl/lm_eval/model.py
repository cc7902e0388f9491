"""The model `repl-rl` of lm-evaluation-harness: problems are answered in the REPL.

    requests -> problems, settings -> rollouts -> submissions -> texts that the harness filters

Exact: prompt, seeds, limits and loop are those of `repl-rl eval`, so trajectories are as equal as
two of its own. Lost: lines, outputs, log-probabilities. The harness gets the answer alone.
Knows requests and plans. Does not know the right answers: nothing is graded.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NoReturn

import lm_eval.models  # noqa: F401  # the harness fills its table of models while it is empty
from lm_eval.api.instance import Instance
from lm_eval.api.model import LM
from lm_eval.api.registry import register_model

from repl_rl.base.disk import read_text
from repl_rl.config.sections import SamplingConfig
from repl_rl.errors import ConfigError
from repl_rl.lm_eval.words import FORMS, answer_in, sampling_for, statement_in
from repl_rl.records import Attempt, Problem, Trajectory
from repl_rl.rollout.plan import plan_of_model
from repl_rl.runs.folder import run_of
from repl_rl.tasks.data.golds import spelled
from repl_rl.tasks.data.task import PROMPT_FILE

_OF_SAMPLING = ("engine", "max_lines", "max_tokens", "temperature")
"""Words of --model_args for settings of this section; others go by their full names."""


@register_model("repl-rl")
class ReplLM(LM):  # type: ignore[misc]  # the harness ships no types
    """A model in the REPL. Kernels and engine live as long as a call of `generate_until`.

        model = ReplLM("runs/mine", **{"seed": 1, "sampling.max_lines": 12})
        lm_eval.simple_evaluate(model, tasks=["gsm8k"], num_fewshot=0)

    `pretrained` is a run, a folder, a GGUF file or owner/name. `answer` is `text`, a form in which
    most filters find the answer, or `plain`. The prompt is that of the run's task or of `task`,
    else the one for rows of data.

    Raises ConfigError for what is unknown or cannot work, before weights are read.
    """

    def __init__(self, pretrained: str = "", answer: str = "text", **given: Any) -> None:
        super().__init__()
        if not pretrained or answer not in FORMS:
            raise ConfigError(
                f"pretrained={pretrained}, answer={answer}; expected PATH and {' or '.join(FORMS)}"
            )
        named = {f"sampling.{key}" if key in _OF_SAMPLING else key: given[key] for key in given}
        if named.pop("device", None) == "cpu":  # the harness says cuda:0 where a person says none
            named["sampling.device"] = "cpu"
        if (at_once := named.pop("batch_size", 1)) not in (1, "auto"):
            named["sampling.max_in_flight"] = at_once
        self._plan, self._form = plan_of_model(pretrained, named), FORMS[answer]
        self._plan.engine.prepare()
        self._temperature = named.get("sampling.temperature")
        has_prompt = {"task", "task.name"} & named.keys() or run_of(Path(pretrained).expanduser())
        self._prompt = self._plan.task.prompt if has_prompt else read_text(PROMPT_FILE)
        self._loaded: Any = None  # a LoadedModel, whose module loads torch

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        """Answer each request in text; empty where nothing was submitted.

        Raises ConfigError for what a rollout cannot do, before weights are read.
        """
        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return self._texts(requests)
        with ThreadPoolExecutor(1) as thread:  # a notebook's loop is at work in this one
            return thread.submit(self._texts, requests).result()

    def _texts(self, requests: list[Instance]) -> list[str]:
        own = self._plan.sampling
        ways = [sampling_for(request.args[1], own) for request in requests]
        for temperature in {way.temperature for way in ways}:
            if self._temperature not in (None, temperature):
                raise ConfigError(
                    f"temperature={self._temperature} in --model_args, {temperature} in a task; "
                    f"give --gen_kwargs do_sample=true,temperature={self._temperature}"
                )
        attempts = self._attempts(requests)
        made: dict[int, Trajectory] = {}
        for way in dict.fromkeys(ways):
            positions = [position for position, other in enumerate(ways) if other == way]
            trajectories = self._answers([attempts[position] for position in positions], way)
            made |= zip(positions, trajectories, strict=True)
        submissions = [made[position].submission for position in range(len(requests))]
        stops = [request.args[1].get("until") for request in requests]
        answers = zip(asyncio.run(spelled(submissions)), stops, strict=True)
        return [answer_in(written, self._form, until) for written, until in answers]

    def _attempts(self, requests: list[Instance]) -> list[Attempt]:
        """One for each, with the seed that `repl-rl eval` gives to a problem of its index."""
        from repl_rl.training.evaluate import attempt_seed

        made, seen = [], Counter[str]()
        for position, request in enumerate(requests):
            index = position if request.doc_id is None else request.doc_id
            name = f"{request.task_name}/{index}"
            if len(request.args) > 2:
                raise ConfigError(f"{name} has images or sounds; expected text alone")
            problem, n = Problem(id=name, statement=statement_in(request.args[0], name)), seen[name]
            seed = attempt_seed(self._plan.seed, index, n)
            made.append(Attempt(problem=problem, group_index=index, sibling_index=n, seed=seed))
            seen[name] += 1
        return made

    def _answers(self, attempts: list[Attempt], way: SamplingConfig) -> list[Trajectory]:
        """Sampled in this way. Processes are gone afterwards, weights stay."""
        from rich.console import Console

        from repl_rl.training.evaluate import answers, asking
        from repl_rl.training.runtime import load_policy
        from repl_rl.viewer.show.display import Screen

        plan = self._plan.sampling_as(way)
        plan = asking(plan, [attempt.problem for attempt in attempts], prompt=self._prompt)
        with Screen(Console(stderr=True)) as screen:
            self._loaded = self._loaded or load_policy(plan, str(plan.model), say=screen.say)
            return answers(plan, attempts, self._loaded, screen)

    def loglikelihood(self, requests: list[Instance]) -> NoReturn:
        raise ConfigError(
            "repl-rl does not score the likelihood of texts; expected tasks with output_type: "
            "generate_until"
        )

    loglikelihood_rolling = loglikelihood

    def apply_chat_template(self, *_: object, **__: object) -> NoReturn:
        raise ConfigError(
            "--apply_chat_template: a transcript brings the template; leave the option out and "
            "give transcript=chat in --model_args"
        )

    chat_template = apply_chat_template
