"""Watch a served model at work: `python ask_server.py http://localhost:8000 MODEL "What is 6*7?"`.

Any server with OpenAI's /v1/completions will do, such as `vllm serve MODEL`. Each line runs in a
sealed kernel. Text travels, not token ids, so this is a look at a model and no way to train it.
Exit code 0 if the model submits an answer, 1 if it does not.
"""

import asyncio
import json
import sys
from urllib.error import URLError
from urllib.request import Request, urlopen

import repl_rl as rr
from repl_sandbox import clean

# Tokens are bytes here, so limits in tokens are wide.
LIMITS = ["sampling.max_tokens=100000", "sampling.max_line_tokens=10000"]


def next_line(url: str, model: str, transcript: str) -> str:
    """What the model writes after the transcript, up to a newline or the end of the sequence."""
    asked = {"model": model, "prompt": transcript, "stop": ["\n"], "max_tokens": 256}
    body, kind = (
        json.dumps({**asked, "temperature": 0.0}).encode(),
        {"Content-Type": "application/json"},
    )
    with urlopen(Request(f"{url}/v1/completions", body, kind), timeout=600) as reply:
        text: str = json.load(reply)["choices"][0]["text"]
    return clean(text.partition("\n")[0])


async def ask(url: str, model: str, question: str) -> str | None:
    """The answer that the model submits; None if it submits none."""
    async with rr.open_env("sympy-proofs", overrides=LIMITS) as env:
        episode = await env.episode(rr.Problem(id="asked", statement=question))
        transcript = episode.prompt
        print(transcript, end="")
        while episode.stop is None:
            line = await asyncio.to_thread(next_line, url, model, transcript)
            if not line and transcript.endswith(">>>"):
                break  # the end of the sequence; a blank line ends a block after `...`
            step = await episode.line(line.removeprefix(" "))
            shown = f"{line}\n{step.observation}"
            print(shown, end="", flush=True)
            transcript += shown
        await episode.aclose()
        return episode.trajectory().submission


if __name__ == "__main__":
    try:
        answer = asyncio.run(ask(*sys.argv[1:4]))
    except (URLError, TimeoutError) as error:
        sys.exit(f"{sys.argv[1]} does not answer: {error}")
    print(f"\nanswer: {answer}")
    sys.exit(answer is None)
