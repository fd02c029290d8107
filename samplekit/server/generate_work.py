"""Drawing completions as an operation: what was drawn, in the protocol's spelling."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from samplekit.server.generation import Drawn, PromptScores, generate, score_prompts
from samplekit.server.records import Output
from samplekit.server.stop_strings import StopWatch
from samplekit.wire.names import StopReason

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from samplekit.sample.arrays import IntArray
    from samplekit.server.bodies import GenerateBody
    from samplekit.server.model_loading import LoadedModel
    from samplekit.server.policy import Policy
    from samplekit.server.settings import DrawingSettings


def generate_work(
    body: GenerateBody, prompts: Sequence[IntArray], settings: DrawingSettings, model: LoadedModel
) -> Callable[[Policy], Output]:
    """Give the work of a sample operation.

    Args:
        body: what else was asked for.
        prompts: token ids, int64 (T_i,) each.
        settings: how to draw, its seed settled when the operation was accepted.
        model: for its tokenizer and stop tokens.
    """
    wants_scores = body.prompt_logprobs or body.topk_prompt_logprobs > 0

    def work(policy: Policy) -> Output:
        watch = StopWatch(model.tokenizer, settings.stop, model.stop_ids)
        drawn = generate(policy.served, prompts, body.num_samples, settings, watch)
        results = [_result(completions, policy.version) for completions in drawn]
        if wants_scores:
            scores = score_prompts(policy.served, prompts, top=body.topk_prompt_logprobs)
            for result, score in zip(results, scores, strict=True):
                result.update(_shown_scores(body, score))
        return Output({}, {"results": results})

    return work


def _result(completions: Sequence[Drawn], version: int) -> dict[str, Any]:
    return {
        "policy_segments": [{"version": version, "start_token": 0}],
        "sequences": [
            {
                "tokens": [str(token) for token in drawn.tokens],
                "logprobs": np.array(drawn.logprobs, np.float32),
                "stop_reason": StopReason.STOP if drawn.stopped else StopReason.LENGTH,
                "prompt_cache_hit_tokens": 0,
            }
            for drawn in completions
        ],
    }


def _shown_scores(body: GenerateBody, score: PromptScores) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    if body.prompt_logprobs:
        shown["prompt_logprobs"] = score.logprobs
    if body.topk_prompt_logprobs:
        pairs = zip(score.top_ids.tolist(), score.top_logprobs, strict=True)
        listed = [{"token_ids": ids, "logprobs": logprobs} for ids, logprobs in pairs]
        shown["topk_prompt_logprobs"] = [{} if index == 0 else item for index, item in enumerate(listed)]
    return shown
