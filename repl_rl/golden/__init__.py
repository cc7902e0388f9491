"""Golden transcripts: what lines and answers are worth, written by hand to check the code.

    *.repl -> text: Golden -> play: Trajectory -> check: Scored, misses, mutants -> suites

Pure but for `play`, which runs the real loop on scripted lines and a fake kernel. Knows no model,
no kernel, no grader: the author writes the verdict.
"""
