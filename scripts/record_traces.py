"""Record what scripts/replay needs: replies of a target, and at every place what a draft model would have proposed.

    python scripts/record_traces.py TARGET.gguf DRAFT.gguf OUT.npz --prompts FILE.jsonl --temperature 0 --temperature 0.7

Each line of the prompts has `suite` and `prompt`. Timing does not matter here: run it beside other work. The reply is
decoded plainly with the engine's own sampler chain; then the draft reads it, and where its proposal is refused it goes on
from there for a few tokens, because a rule that looks at confidence is shown these before the target refuses them.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).parents[1]))
from engine.llama.context import Context
from engine.llama.model import Model
from engine.llama.sampler import SamplerChain
from engine.prompt import PromptBuilder
from engine.sampling import Distribution, SamplingParams
from engine.token_cache import TokenCache
from engine.values import ChatMessage, GenerationRequest
from engine.vocabulary import check_vocabularies
from scripts.replay.trace import ReplyTrace, save_traces

BRANCH_TOKENS = 8
BRANCH_ODDS = 0.05
"""A branch is followed while the product of its confidences is above this: no rule goes on further."""
CHUNK = 64


def top_probability(logits: np.ndarray) -> float:
    return float(1 / np.exp(logits - logits.max()).sum())


class Recorder:
    """A loaded pair. `record` gives one reply's trace."""

    def __init__(self, target: Path, draft: Path, context: int, threads: int) -> None:
        self.target, self.draft = Model(target), Model(draft)
        self.shared = check_vocabularies(self.target, self.draft).size
        self.n_ctx = context
        how = {"n_ctx": context, "batch": 512, "threads": threads, "batch_threads": threads}
        self._target = TokenCache(Context(self.target, max_outputs=1, **how))
        self._draft = TokenCache(Context(self.draft, max_outputs=CHUNK, **how))

    def record(self, suite: str, prompt_id: int, text: str, params: SamplingParams, max_tokens: int) -> ReplyTrace:
        request = GenerationRequest(messages=(ChatMessage("user", text),), sampling=params, max_tokens=max_tokens)
        prompt = list(PromptBuilder(self.target).build(request, self.n_ctx - max_tokens).ids)
        rng = np.random.default_rng([prompt_id, int(1000 * params.temperature)])
        tokens, p, ease = self._write(prompt, params, max_tokens, rng)
        drafted, q, top, branch = self._propose(prompt, tokens, p, params, rng)
        return ReplyTrace(
            suite, prompt_id, params.temperature, self.target.is_end(tokens[-1]), np.array(prompt, dtype=np.int32),
            np.array(tokens, dtype=np.int32), np.array(ease), np.array(top), np.array(drafted, dtype=np.int32), tuple(p),
            tuple(q), tuple(branch),
        )

    def _write(
        self, prompt: list[int], params: SamplingParams, max_tokens: int, rng: np.random.Generator
    ) -> tuple[list[int], list[Distribution], list[float]]:
        """The target's reply, token by token."""
        cache, chain = self._target, SamplerChain(self.target, params, self.n_ctx)
        cache.keep(min(cache.match(prompt), len(prompt) - 1))
        unread = prompt[cache.wanted :]
        tokens: list[int] = []
        p: list[Distribution] = []
        ease: list[float] = []
        while len(tokens) < max_tokens:
            cache.extend(unread, 1)
            logits = cache.context.logits(0)
            p.append(chain.distribution(logits))
            ease.append(top_probability(logits))
            tokens.append(p[-1].draw(rng.random()))
            if self.target.is_end(tokens[-1]):
                break
            unread = tokens[-1:]
        chain.close()
        return tokens, p, ease

    def _propose(
        self, prompt: list[int], tokens: list[int], p: list[Distribution], params: SamplingParams, rng: np.random.Generator
    ) -> tuple[list[int], list[Distribution], list[float], list[np.ndarray]]:
        """What the draft proposes at every place of the reply, and how it goes on where that is refused."""
        cache, chain = self._draft, SamplerChain(self.draft, params, self.n_ctx, n_vocab=self.shared)
        cache.keep(min(cache.match(prompt), len(prompt) - 1))
        if unread := prompt[cache.wanted : -1]:
            cache.extend(unread, 1)
        places = [prompt[-1], *tokens[:-1]]
        drafted, q, top = [], [], []
        for start in range(0, len(places), CHUNK):
            chunk = places[start : start + CHUNK]
            cache.extend(chunk, len(chunk))
            for i in range(len(chunk)):
                logits = cache.context.logits(i)[: self.shared]
                q.append(chain.distribution(logits))
                top.append(top_probability(logits))
                drafted.append(coupled(tokens[start + i], p[start + i], q[-1], rng))
        branch = [
            np.zeros(0) if x == y else self._go_on(len(prompt) + t, x, chain, params, rng)
            for t, (x, y) in reversed(list(enumerate(zip(drafted, tokens, strict=True))))  # the cache can only shrink
        ][::-1]
        chain.close()
        return drafted, q, top, branch

    def _go_on(self, place: int, token: int, chain: SamplerChain, params: SamplingParams, rng: np.random.Generator) -> np.ndarray:
        """The draft's confidences in what it would draft after `token`, which stands at `place` of the text."""
        cache, found, odds = self._draft, [], 1.0
        cache.keep(place)
        while len(found) < BRANCH_TOKENS and odds > BRANCH_ODDS:
            cache.extend([token], 1)
            logits = cache.context.logits(0)[: self.shared]
            q = chain.distribution(logits)
            token = q.draw(rng.random())
            found.append(top_probability(logits) if params.greedy else q.prob(token))
            odds *= found[-1]
        cache.keep(place)
        return np.array(found)


def coupled(token: int, p: Distribution, q: Distribution, rng: np.random.Generator) -> int:
    """A draw from q that equals `token`, itself drawn from p, as often as any can (maximal coupling)."""
    if rng.random() * p.prob(token) < q.prob(token):
        return token
    rest = q.excess(1.0, p)
    return Distribution(q.ids, rest / rest.sum()).draw(rng.random()) if rest.sum() > 0 else token


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("target", type=Path)
    parser.add_argument("draft", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--prompts", type=Path, required=True)
    parser.add_argument("--temperature", type=float, action="append")
    parser.add_argument("--max-tokens", type=int, default=256)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--part", default="0/1", help="I/N: every Nth prompt from the Ith")
    parser.add_argument("--skip", type=int, default=0, metavar="N", help="leave out the first N prompts")
    args = parser.parse_args()
    recorder = Recorder(args.target, args.draft, 4096, args.threads)
    first, step = map(int, args.part.split("/"))
    prompts = [json.loads(line) for line in args.prompts.read_text(encoding="utf-8").splitlines()]
    manifest = {"target": args.target.name, "draft": args.draft.name, "prompts": args.prompts.name, "sampling": "the engine's defaults"}
    replies: list[ReplyTrace] = []
    started = time.time()
    for prompt_id in range(args.skip + first, len(prompts), step):
        line = prompts[prompt_id]
        for temperature in args.temperature or [0.0, 0.7, 1.0]:
            params = SamplingParams(temperature=temperature)
            replies.append(recorder.record(line["suite"], prompt_id, line["prompt"], params, args.max_tokens))
            kept = np.mean([replies[-1].kept(t) for t in range(len(replies[-1]))])
            print(f"{time.time() - started:6.0f} s  {line['suite']:12} {temperature}: {len(replies[-1])} tokens, {kept:.0%} kept", flush=True)
        save_traces(args.out, replies, manifest)


if __name__ == "__main__":
    main()
