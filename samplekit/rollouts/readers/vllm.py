"""What vLLM's own `LLM.generate` gives -> a group."""

from __future__ import annotations

from typing import Any

from samplekit.errors import SampleError
from samplekit.rollouts.completion import Completion
from samplekit.rollouts.group import Group
from samplekit.rollouts.listed import listed
from samplekit.rollouts.readers.fields import (
    completion_at,
    field,
    in_order,
    objects,
    prompt_ids,
    prompt_logprobs,
    reason_text,
    top_logprob,
)
from samplekit.rollouts.readers.whole import refuse_unfinished
from samplekit.rollouts.sampled import is_empty, sampled_ids


def group_from_vllm(output: object, *, id: str | int | None = None) -> Group:  # noqa: A002 - as Group calls it
    """Read one RequestOutput: a prompt and its completions.

    Args:
        output: sampled with ``SamplingParams(logprobs=0)`` or more, and, for the prompt's logprobs, prompt_logprobs=0.
        id: the group's id. The engine's request_id is not taken: it starts anew with every engine.

    Raises:
        SampleError: ids or logprobs are missing (the message names the completion), or the output is not finished.
    """
    prompt = field(output, "prompt_token_ids")
    if prompt is None:
        raise SampleError("output has no prompt_token_ids, expected a RequestOutput of vLLM")
    refuse_unfinished(output)
    ids = prompt_ids(prompt, "output.prompt_token_ids")
    found = in_order(objects(field(output, "outputs"), "output.outputs"), "output.outputs")
    given = field(output, "prompt_logprobs")
    return Group(
        ids,
        [_completion(item, f"output.outputs[{number}]") for number, item in enumerate(found)],
        id=id,
        prompt_logprobs=None if given is None else prompt_logprobs(given, ids, "output.prompt_logprobs"),
    )


def _completion(output: Any, where: str) -> Completion:  # noqa: ANN401 - the engine's answer
    tokens, logprobs = field(output, "token_ids"), field(output, "logprobs")
    if tokens is None or (logprobs is None and not is_empty(tokens)):
        missing, advice = "logprobs", "ask with SamplingParams(logprobs=0)"
        if tokens is None:
            missing, advice = "token_ids", "pass a RequestOutput as LLM.generate gives it"
        raise SampleError(f"{where} has no {missing}, expected one for every sampled token: {advice}")
    ids = sampled_ids(tokens, f"{where}.token_ids", may_be_empty=True)
    given = [] if logprobs is None else listed(logprobs, f"{where}.logprobs", "one mapping for every sampled token")
    values: Any = [
        top_logprob(item, int(ids[place]), f"{where}.logprobs[{place}]") if place < len(ids) else 0.0
        for place, item in enumerate(given)
    ]
    return completion_at(where, ids, values, stop_reason=reason_text(field(output, "finish_reason")))
