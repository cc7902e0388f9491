"""Transcript formats by name: the plain REPL, IPython's prompts, chats, a user's own.

    name -> TranscriptFormat

Knows prompts. Does not know kernels, tasks or models.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

from repl_rl.base.plugins import load_named
from repl_rl.errors import ConfigError
from repl_rl.transcript.chat import ChatTemplate
from repl_rl.transcript.format import PYTHON, TranscriptFormat

_DISPLAY = """\
def _display(value, *, mark):
    import builtins
    if value is not None:
        # By their module: in the kernel's own namespace a line may call something else `repr`.
        text = builtins.repr(value)
        builtins.print(mark, text, sep="\\n" if "\\n" in text else "")
        builtins._ = value

import sys, functools
sys.displayhook = functools.partial(_display, mark="Out[{n}]: ")
del _display, sys, functools
"""

IPYTHON = TranscriptFormat(
    name="ipython",
    banner=(
        "Python {version}\n"
        "Type 'copyright', 'credits' or 'license' for more information\n"
        "IPython -- An enhanced Interactive Python. Type '?' for help.\n"
    ),
    primary="In [{n}]:",
    secondary="   ...:",
    display_mark="Out[{n}]: ",
    setup=(_DISPLAY,),
)
"""`ipython --nosep`: no blank lines between statements. The language is plain Python, without
magics; tracebacks are CPython's."""


FormatMaker = Callable[[ChatTemplate | None], TranscriptFormat]


def find_format(name: str) -> TranscriptFormat | FormatMaker:
    """The format of a name in the entry point group `repl_rl.transcripts`, or `module:attribute`.

    It may be a function that makes a format from a model's chat template. Raises ConfigError where
    the name stands for neither.
    """
    named = load_named(name, group="repl_rl.transcripts")
    if isinstance(named, TranscriptFormat):
        return named
    if not inspect.isfunction(named):
        raise ConfigError(f"{name!r} is a {type(named).__name__}; expected a TranscriptFormat")
    maker: FormatMaker = named
    return maker


def load_repl(name: str) -> TranscriptFormat:
    """The REPL that transcripts of this name show, for callers that have no model at hand.

    A format that takes a chat template shows `PYTHON`, with the template's text around it.
    """
    named = find_format(name)
    return named if isinstance(named, TranscriptFormat) else PYTHON


def load_format(name: str, template: ChatTemplate | None = None) -> TranscriptFormat:
    """The format of a name; ConfigError where it takes a template and there is none."""
    named = find_format(name)
    return named if isinstance(named, TranscriptFormat) else named(template)
