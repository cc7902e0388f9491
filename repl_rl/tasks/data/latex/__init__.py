r"""Meanings of a gold answer in LaTeX, spelled as Python that `grading.parse` reads.

    text -> atoms (`atoms`) -> lists, sets, relations, units, choices (`answers`)
         -> expressions (`expressions`)

Everything that is read is read once and whole. What these modules have no rule for is refused: a
reading that is silently another thing is worse than none. No module knows a submission or a
verdict.
"""

from repl_rl.tasks.data.latex.answers import readings

__all__ = ["readings"]
