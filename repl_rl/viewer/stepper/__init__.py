"""The terminal in which a person walks through a stored trajectory, over a live kernel.

    Live, Annotated -> Walk (what is known at the current line) -> views (text) -> app (keys)

What a policy or a kernel wrote is shown as text alone, never as markup.
"""

from repl_rl.viewer.stepper.app import Stepper

__all__ = ["Stepper"]
