"""Read a run's trajectories: `python examples/read_a_run.py runs/RUN/trajectories/after.jsonl`.

Prints how often each outcome of a line occurs, and the share of tokens that the model wrote.
"""

import sys
from collections import Counter
from pathlib import Path

from repl_rl.runs.trajectory_file import read_trajectories


def main(path: Path) -> None:
    kinds: Counter[str] = Counter()
    num_sampled = num_tokens = 0
    for scored in read_trajectories(path):
        kinds.update(line.outcome.kind for line in scored.trajectory.lines)
        num_sampled += sum(scored.trajectory.loss_mask)
        num_tokens += len(scored.trajectory.loss_mask)
    for kind, count in kinds.most_common():
        print(f"{kind:16}{count}")
    print(f"sampled tokens  {num_sampled} of {num_tokens}")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
