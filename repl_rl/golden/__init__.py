"""Golden transcripts: what lines and answers are worth, written down by hand and held to the code.

    *.repl -> text: Golden -> play: Trajectory -> check: Scored, misses -> mutants

Pure but for `play`, which runs the real loop on scripted lines and a fake kernel. Knows no
model, no kernel, no grader: a verdict is what the author wrote.
"""
