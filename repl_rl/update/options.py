"""Options that are passed on to TRL, checked against its own fields before anything slow begins.

    [trl] -> names and types of GRPOConfig -> a dry run of optimiser and schedule, or a ConfigError

Does not know which options are refused here: see `foreign_words`.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, get_type_hints

import msgspec
import torch
from transformers import Trainer, get_scheduler

from repl_rl.base.terminal import one_row
from repl_rl.config.describe import unknown
from repl_rl.errors import ConfigError


def check_fields(options: Mapping[str, Any], shape: type) -> None:
    """ConfigError for an option that is no field of `shape`, or of another type."""
    known = [f"trl.{field.name}" for field in fields(shape)]
    hints = get_type_hints(shape) if options else {}
    for name, value in options.items():
        if name not in hints:
            raise unknown(f"trl.{name}", known)
        try:
            msgspec.convert(value, hints[name])
        except msgspec.ValidationError as error:
            raise ConfigError(_misfit(f"trl.{name}", value, str(error))) from None
        except TypeError:
            pass  # a union with an enum, whose words TRL looks up itself


def _misfit(name: str, value: Any, error: str) -> str:
    """Say what is wrong with an option, or with the entry of its list that the error names.

    >>> _misfit("trl.label_names", ["a", 1], "Expected `str`, got `int` - at `$[1]`")
    'trl.label_names[1] = 1; expected str'
    """
    expected = error.partition(",")[0].lower().replace("`", "").replace(" | null", "")
    for index in re.findall(r"\[(\d+)\]", error.partition(" - at ")[2]):
        name, value = f"{name}[{index}]", value[int(index)]
    return f"{name} = {value!r}; {expected}"


@contextlib.contextmanager
def refusals_explained(options: Mapping[str, Any]) -> Iterator[None]:
    """ConfigError in place of what TRL, transformers and torch raise for options that they refuse.

    Without options an error is nobody's but ours.
    """
    try:
        yield
    except ConfigError:
        raise
    except (ValueError, TypeError, NotImplementedError, ImportError) as error:
        if not options:
            raise
        given = ", ".join(f"{name} = {value!r}" for name, value in options.items())
        raise ConfigError(f"TRL refuses [trl] {given}: {one_row(str(error))}") from None


def try_optimiser(args: Any) -> None:
    """Make optimiser and schedule for a single weight: whatever they raise is raised here."""
    if args.optim_target_modules:
        return  # it asks for the layers of a model
    made, settings = Trainer.get_optimizer_cls_and_kwargs(args)
    optimiser = made([torch.nn.Parameter(torch.zeros(1))], **settings)
    get_scheduler(
        args.lr_scheduler_type,
        optimizer=optimiser,
        num_warmup_steps=args.get_warmup_steps(args.max_steps),
        num_training_steps=args.max_steps,
        scheduler_specific_kwargs=args.lr_scheduler_kwargs,
    )
