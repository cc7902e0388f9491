"""Scored trajectories as records of other trainers.

    Scored, advantages [T] -> ids, mask, log-probabilities, advantages, in the fields of a framework

Carried exactly: ids, mask, and line rewards (but for tinker, which has no field for them).
Log-probabilities and advantages are exact where the framework keeps Python's floats; tinker keeps
single precision. Lost: the text of lines, outcomes, verdicts, and log-probabilities of tokens that
are not trained. A token is trained where the policy sampled it, once: tokens that a branch has
copied are trained in the trajectory that they come from. Elsewhere log-probability and advantage
are 0.

    from repl_rl import export

    rows = repl_rl.advantages(group)
    data = [export.tinker_datum(*pair) for pair in zip(group, rows, strict=True)]

Pure functions. Knows no trainer, no torch and no engine; only `tinker_datum` imports a framework.
"""

from repl_rl.integrations.export import Row, row_of, skyrl, tinker_datum, verl

__all__ = ["Row", "row_of", "skyrl", "tinker_datum", "verl"]


def __getattr__(name: str) -> object:
    known = f"repl_rl.export has no {name!r}; there are {', '.join(__all__)}"
    if name in ("rllm", "slime"):  # what an AttributeError says is lost in `from ... import`
        raise ImportError(f"{known}; rllm and slime are gone, and row_of gives the same lists")
    raise AttributeError(known)
