"""Golden files as transcripts that a model is shown."""

from __future__ import annotations

from pathlib import Path

from repl_rl.golden.check import read_written

TEXT = r"""=== two rows
statement: What is 1 + 1?
statement: Answer: an integer.

>>> 1 + 1
2
>>> for i in [1]:
...     print(">>>")
...
\>>>
>>> submit_final_answer(2)

=== What is 2 + 2?

>>> submit_final_answer(4)
"""


def test_a_transcript_has_its_statement_its_lines_and_their_places(tmp_path: Path) -> None:
    path = tmp_path / "mine.repl"
    path.write_text(TEXT)
    first, second = read_written(path)
    assert first.problem.statement == "What is 1 + 1?\nAnswer: an integer."
    assert [(line.source, line.output) for line in first.lines] == [
        ("1 + 1", "2\n"),
        ("for i in [1]:", ""),
        ('    print(">>>")', ""),
        ("", ">>>\n"),
        ("submit_final_answer(2)", ""),
    ]
    assert [line.place for line in first.lines] == [f"{path}:{n}" for n in (5, 7, 8, 9, 11)]
    assert (second.problem.statement, second.has_outputs) == ("What is 2 + 2?", False)
