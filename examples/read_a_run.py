"""Read a run without repl-rl: `python examples/read_a_run.py runs/RUN/trajectories/*.jsonl`.

Prints how often each outcome of a line occurs, and the share of tokens that the model wrote.
"""

import json
import sys
from collections import Counter


def main(paths: list[str]) -> None:
    kinds: Counter[str] = Counter()
    num_sampled = num_tokens = 0
    for path in paths:
        with open(path, encoding="utf-8") as file:
            rows = [json.loads(row) for row in file if row.strip()]
        for row in rows:
            if "scored" not in row:
                continue  # where the rows below it come from
            trajectory = row["scored"]["trajectory"]
            kinds.update(line["outcome"]["kind"] for line in trajectory["lines"])
            num_sampled += sum(trajectory["loss_mask"])
            num_tokens += len(trajectory["loss_mask"])
    for kind, count in kinds.most_common():
        print(f"{kind:16}{count}")
    print(f"sampled tokens  {num_sampled} of {num_tokens}")


if __name__ == "__main__":
    main(sys.argv[1:])
