"""Sessions in docstrings become blocks of code: Markdown would take `>>>` for quotations."""

from __future__ import annotations

import re
from typing import Any

import griffe

_SESSION = re.compile(r"^(?:>>> .*|\.\.\. .*|\.\.\.)(?:\n(?!\n).+)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Fences each session, from its first prompt to the next blank row."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _SESSION.sub("```pycon\n\\g<0>\n```", obj.docstring.value)
