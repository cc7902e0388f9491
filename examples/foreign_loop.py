"""A loop of your own around tinker's sampler and trainer: `python foreign_loop.py MODEL`.

It needs an account of tinker's. Its clients sample each line and take each step. Lines run in
sealed kernels here, and what they have earned goes back token for token.
"""

import asyncio
import sys
from contextlib import aclosing
from itertools import islice
from typing import Any

import tinker

import repl_rl as rr
from repl_rl import export


async def rollout(env: rr.Env, client: Any, problem: rr.Problem, **place: Any) -> rr.Scored:
    """One trajectory; its kernel is given back however this ends."""
    async with aclosing(await env.episode(problem, context_tokens=8192, **place)) as episode:
        while episode.stop is None:
            params = tinker.SamplingParams(
                max_tokens=episode.room, seed=episode.line_seed, stop=sorted(episode.stop_ids)
            )
            prompt = tinker.ModelInput.from_ints(episode.ids)
            response = await client.sample(prompt, num_samples=1, sampling_params=params)
            await episode.take(response.sequences[0].tokens, response.sequences[0].logprobs)
        return await episode.score()


async def train(env: rr.Env, trainer: Any, codec: rr.Codec, *, steps: int, siblings: int) -> None:
    problems = islice(env.plan.task.problems(rr.Split.TRAIN, seed=0), steps)
    for step, problem in enumerate(problems):
        client = await trainer.save_weights_and_get_sampling_client()
        async with asyncio.TaskGroup() as tasks:  # where one fails, the others end
            places = [{"codec": codec, "seed": i, "sibling_index": i} for i in range(siblings)]
            begun = [tasks.create_task(rollout(env, client, problem, **one)) for one in places]
        scored = [one.result() for one in begun]
        rows = rr.advantages(scored, credit="line_local")
        pairs = zip(scored, rows, strict=True)
        data = [export.tinker_datum(*pair, with_mask=False) for pair in pairs]
        await trainer.forward_backward(data, loss_fn="importance_sampling")
        await trainer.optim_step(tinker.AdamParams(learning_rate=1e-5))
        print(step, [item.reward.total for item in scored])


async def main(model: str) -> None:
    trainer = await tinker.ServiceClient().create_lora_training_client(base_model=model)
    tokenizer = trainer.get_tokenizer()
    codec = rr.TokenizerCodec(tokenizer, eos_ids=[tokenizer.eos_token_id])
    async with rr.open_env("sympy-proofs") as env:
        await train(env, trainer, codec, steps=100, siblings=8)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1]))
