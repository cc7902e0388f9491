r"""The words of tasks: what a request asks and allows, and an answer as filters look for it.

    "Question: What is 6*7?\nAnswer:" -> "What is 6*7?";   "42" -> "... \boxed{42}\n#### 42"

Pure functions. Does not know what is sampled.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from repl_rl.config.sections import SamplingConfig
from repl_rl.errors import ConfigError
from repl_rl.tasks.data.texts import statement_of

FORMS = {
    "text": "The answer is {0}.\nFinal Answer: The final answer is {0}. I hope it is correct.\n"
    "In LaTeX: ${1}$, or \\boxed{{{1}}}\n#### {0}",
    "plain": "{0}",
}
"""`text` has what gsm8k, minerva_math, hendrycks_math, aime, bbh and their kin look for."""
_LABEL = re.compile(r"\s*(Question:|Problem:|Q:)\s*")
_CUE = re.compile(r"\s*^\s*(Answer:|Solution:|A:)\s*\Z", re.MULTILINE)
_MOST = ("max_gen_toks", "max_new_tokens", "max_tokens", "max_completion_tokens")
_NEUTRAL = {"top_p": (1,), "top_k": (0, -1), "min_p": (0,), "num_beams": (1,)}
"""Values that change nothing about sampling, whoever gives them."""


def statement_in(context: str, name: str) -> str:
    """The problem of a request, without the words that ask for a text to be continued.

    Raises ConfigError for an empty one, and for one that follows worked examples.
    """
    for cut in filter(None, (_LABEL.match(context), _CUE.search(context))):
        if len(re.findall(rf"^\s*{cut[1]}", context, re.MULTILINE)) > 1:
            raise ConfigError(
                f"{name}: {cut[1]!r} stands twice in the context: a policy in the REPL cannot "
                f"continue worked examples; give --num_fewshot 0"
            )
    try:
        return statement_of(_CUE.sub("", _LABEL.sub("", context, count=1)))
    except ValueError as error:
        raise ConfigError(f"{name}: {error}; expected a problem in words") from None


def sampling_for(kwargs: Mapping[str, Any], own: SamplingConfig) -> SamplingConfig:
    """The settings of sampling under a task's generation_kwargs, `until` apart.

    Of two bounds on tokens the smaller one holds. `do_sample: false` is temperature 0, as for all
    models of the harness. Raises ConfigError, with the name, for what cannot hold.
    """
    left = {name: value for name, value in kwargs.items() if value is not None and name != "until"}
    most = min([own.max_tokens, *(int(left.pop(name)) for name in _MOST if name in left)])
    temperature = left.pop("temperature", own.temperature)
    is_greedy = left.pop("do_sample", None) is False
    for name, value in left.items():
        if value not in _NEUTRAL.get(name, ()):
            raise ConfigError(
                f"{name}={value!r} in generation_kwargs cannot hold where lines are sampled; give "
                f"--gen_kwargs {name}={_NEUTRAL.get(name, ('None',))[0]}"
            )
    return replace(own, max_tokens=most, temperature=0.0 if is_greedy else float(temperature))


def answer_in(written: tuple[str, str] | None, form: str, until: str | Sequence[str] | None) -> str:
    """The answer to a request, up to the first string of `until`; empty where there is none.

    `written` is the submission as `tasks.data.spelled` has it.
    """
    text = "" if written is None else form.format(*written)
    stops = [until] if isinstance(until, str) else until or []
    return text[: min((text.find(stop) for stop in stops if stop in text), default=None)]
