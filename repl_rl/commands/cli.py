"""The command line: `repl-rl COMMAND`. Finds the command and turns errors into one line.

    words -> COMMANDS -> the module of one command -> exit code

Knows the names of commands and the first line of their help. Does not know their options: the
module of a command is imported when it is called.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import re
import signal
import sys
import traceback
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from repl_rl import __version__
from repl_rl.base.concurrency import end_as_interrupted, exit_code, received_signals
from repl_rl.base.plugins import nearest
from repl_rl.base.terminal import forget_odd_size, one_row
from repl_rl.errors import ConfigError, ReplRLError, how_to_install
from repl_rl.update.ranks import is_launched, launched, refuse_several
from repl_sandbox.render import clean
from repl_sandbox.types import SandboxError, SettingError

FAILED = 1
USAGE_ERROR = 2
COMMANDS = {
    "ask": ("ask:ask", "Ask a model a question."),
    "attach": ("replay:attach", "Attach a Jupyter console to the state before a line."),
    "audit": ("audit:audit", "Check that training sees what was sampled."),
    "config": ("config:config", "Explain the settings: all, a section or one."),
    "doctor": ("doctor:doctor", "Check what this machine can do."),
    "eval": ("evaluate:evaluate", "Measure a run's last checkpoint, or a model."),
    "help": ("cli:show_help", "Print what --help prints."),
    "kernels": ("kernels:kernels", "Keep sealed kernels ready for Jupyter clients."),
    "merge": ("merge:merge", "Merge an adapter into its model."),
    "play": ("play:play", "Be the policy: write the lines yourself."),
    "plot": ("plot:plot", "Draw the learning curves of runs."),
    "push": ("push:push", "Push a run's weights to the hub, with a card."),
    "replay": ("replay:replay", "Step through trajectories, or run them again."),
    "reward": ("reward:reward", "Test a reward, explain it or mutate its constants."),
    "rollout": ("rollout:rollout", "Sample one trajectory and check it."),
    "serve-env": ("serve_env:serve_env", "Serve a task as an OpenEnv environment, until Ctrl-C."),
    "show": ("show:show", "Print stored trajectories, with each line's outcome and reward."),
    "tasks": ("tasks:tasks", "List the tasks, or check a task or a file of problems."),
    "train": ("train:train", "Train a policy with GRPO, line by line."),
    "warmstart": (
        "warmstart:warmstart",
        "Fine-tune a model on transcripts so that it can use the REPL.",
    ),
    "worker": ("worker:worker", "Sample trajectories for `repl-rl train`, which starts it."),
}
"""Name of a command -> (MODULE:ATTRIBUTE in this folder, the first line of its help)."""
GROUPED = {"explain": "reward", "mutate": "reward", "serve": "kernels", "test": "reward"}
"""Name of a command within a group -> the group."""

_EXTRA_OF = {
    **dict.fromkeys(("textual", "nbformat", "tokenizers"), "replay"),
    **dict.fromkeys(("accelerate", "datasets", "httpx", "huggingface_hub", "matplotlib"), "train"),
    **dict.fromkeys(("numpy", "peft", "safetensors", "torch", "transformers", "trl"), "train"),
    "gguf": "gguf",
    **dict.fromkeys(("fastapi", "openenv", "uvicorn"), "openenv"),
}
"""Packages that a base installation does without, and what installs them."""


def main() -> None:
    """Entry point. Exit codes: 0 done, 1 our side failed, 2 bad usage or config, 130 and 143 for
    SIGINT and SIGTERM."""
    open_streams()
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TRL_EXPERIMENTAL_SILENCE", "1")
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    forget_odd_size()
    if not is_launched():
        # With several GPUs transformers would split batches over them behind our back.
        os.environ.setdefault("CUDA_VISIBLE_DEVICES", "0")
    # A shell's background job starts with Ctrl-C ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, end_as_interrupted)
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        _with_hint(error).show()
        sys.exit(USAGE_ERROR)
    except (KeyboardInterrupt, click.Abort) as error:
        # It may have come while an object was made; what is there of it cannot close itself.
        sys.unraisablehook = lambda _: None
        detail = str(error.__cause__ or error)  # click has its own type for it
        _fail(f"interrupted{detail and '; '}{detail}", exit_code())
    except (ConfigError, SettingError) as error:
        lacking = _lacking(error.__cause__)
        _fail(one_row(f"{error}; {lacking}" if lacking else str(error)), USAGE_ERROR)
    except ModuleNotFoundError as error:
        if not (lacking := _lacking(error)):
            raise
        _fail(lacking, USAGE_ERROR)
    except OSError as error:
        # Others keep their traceback: they are a fault of ours, or of the machine.
        if error.errno in (errno.EACCES, errno.ENAMETOOLONG) and _is_given(error.filename):
            _fail(one_row(f"{error.filename}: {error.strerror}"), USAGE_ERROR)
        if error.errno != errno.ENOSPC or not _is_of_terminal(error):
            raise
        _fail(f"stdout: {error.strerror}", FAILED)
    except (ReplRLError, SandboxError) as error:
        # It may quote the last words of another process, on rows of their own.
        _fail(clean(str(error)), FAILED)


def _is_given(path: object) -> bool:
    """True for a path that a word of the command names, and for one in it."""
    words = [part for word in sys.argv[1:] for part in (word, word.partition("=")[2]) if part]
    return isinstance(path, str) and any(Path(path).is_relative_to(word) for word in words)


def _is_of_terminal(error: OSError) -> bool:
    """True where click or rich failed, which write to streams alone."""
    *_, (frame, _) = traceback.walk_tb(error.__traceback__)
    return str(frame.f_globals.get("__name__")).partition(".")[0] in ("click", "rich")


def _lacking(error: BaseException | None) -> str:
    """Say how to install what a ModuleNotFoundError misses; empty for what is in no extra."""
    missing = error.name if isinstance(error, ModuleNotFoundError) else None
    package = (missing or "").partition(".")[0]
    if package not in _EXTRA_OF:
        return ""
    return (
        f"{package} is not installed, but this command needs it; "
        f"{how_to_install(_EXTRA_OF[package])}"
    )


def open_streams() -> None:
    """Give this process the standard streams that it was started without, empty ones."""
    for name, mode in (("stdin", "r"), ("stdout", "w"), ("stderr", "w")):
        if getattr(sys, name) is None:
            setattr(sys, name, open(os.devnull, mode))  # noqa: SIM115  # as long as the process


_FORMER_OPTIONS = {
    ("replay", "--output"): "--rescore prints what changes: send that to a file by `> FILE`"
}
"""(Command, an option that it had) -> what to do."""


def _with_hint(error: click.ClickException) -> click.ClickException:
    """Return the error; for an option that is a setting, one that says how to set it."""
    if named := re.match(r"No such command '([\w-]+)'", error.message):
        return _with_nearest(error, named[1])
    if not isinstance(error, click.NoSuchOption) or error.ctx is None:
        return error
    former = _FORMER_OPTIONS.get((str(error.ctx.info_name), error.option_name))
    if former is not None:
        return click.UsageError(f"No such option {error.option_name!r}; {former}", ctx=error.ctx)
    if all(option.name != "overrides" for option in error.ctx.command.params):
        return error
    from repl_rl.config.describe import option_hint  # all settings, for this error alone

    words = sys.argv[1:]
    behind = words[words.index(error.option_name) + 1 :] if error.option_name in words else []
    given = next((word for word in behind[:1] if not word.startswith("-")), "VALUE")
    hint = option_hint(error.option_name, given)
    if hint is None:
        return error
    return click.UsageError(f"No such option {error.option_name!r}; {hint}", ctx=error.ctx)


def _with_nearest(error: click.ClickException, name: str) -> click.ClickException:
    """Return the error about an unknown command; one that names a known command where it can."""
    if (group := GROUPED.get(name)) is not None:
        return click.UsageError(f"No such command {name!r}; it is 'repl-rl {group} {name}'")
    hint = nearest(name, COMMANDS)
    return click.UsageError(f"No such command {name!r}; {hint}") if hint else error


def _fail(message: str, code: int) -> None:
    """Print the message and exit; of several interrupted processes only the first one prints it."""
    rank = 0
    with contextlib.suppress(ConfigError):  # it may be what is wrong
        rank = launched().rank
    if not (rank and received_signals):
        click.echo(f"repl-rl: {f'rank {rank}: ' if rank else ''}{message}", err=True)
    sys.exit(code)


class LazyGroup(click.Group):
    """Group of the commands in `COMMANDS`; listing them imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module, _, attribute = COMMANDS[cmd_name][0].partition(":")
        command = getattr(importlib.import_module(f"repl_rl.commands.{module}"), attribute)
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, text) for name, (_, text) in COMMANDS.items()])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        return [
            *(
                CompletionItem(name, help=text)
                for name, (_, text) in COMMANDS.items()
                if name.startswith(incomplete)
            ),
            *click.Command.shell_complete(self, ctx, incomplete),
        ]


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="repl-rl")
@click.pass_context
def cli(context: click.Context) -> None:
    """Reinforcement learning for language models that think in a Python REPL."""
    if context.invoked_subcommand not in ("train", "worker"):
        refuse_several(f"repl-rl {context.invoked_subcommand}")


@click.command("help")
@click.pass_context
def show_help(context: click.Context) -> None:
    """Print what --help prints."""
    assert context.parent is not None
    click.echo(context.parent.get_help())


if __name__ == "__main__":
    main()
