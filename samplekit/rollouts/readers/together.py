"""Results of together's own SDK (3.1.1) -> groups."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from samplekit.errors import AlignmentError, SampleError
from samplekit.rollouts.group import Group
from samplekit.rollouts.listed import listed
from samplekit.rollouts.readers.fields import (
    apart,
    completion_at,
    field,
    ids_of_groups,
    objects,
    prompt_ids,
    reason_text,
)
from samplekit.rollouts.readers.whole import refuse_flat
from samplekit.rollouts.sampled import is_empty
from samplekit.sample.kinds import shown


def groups_from_together(
    result: object, prompts: Sequence[object], *, ids: Sequence[str | int | None] | None = None
) -> list[Group]:
    """Read what together's SDK sampled, one group a prompt.

    Token ids may be decimal strings there; they become ints. A sequence without logprobs is an error.

    Args:
        result: what `sample_batch` or `sample` gives, or a finished sample operation, or the JSON of any of them.
        prompts: what was sampled from, in the same order: token ids, or model inputs as they were sent.
        ids: each group's id; None leaves groups without one. Two prompts cannot have one id; one that was sampled from
            several times can.

    Raises:
        AlignmentError: there is not one result, and one id, for each prompt, or not one logprob for each of its tokens.
        SampleError: a completion cannot be one (the message names it), or an operation is not finished or has failed.
    """
    found = _results(result)
    sent = listed(prompts, "prompts", "what was sampled from, one for each result")
    refuse_flat(sent, "prompts")
    if len(found) != len(sent):
        raise AlignmentError(f"results holds {len(found)} results, prompts {len(sent)}, expected one for each prompt")
    names = ids_of_groups(ids, len(sent))
    return apart(
        [
            _group(item, prompt, name, index)
            for index, (item, prompt, name) in enumerate(zip(found, sent, names, strict=True))
        ]
    )


def _results(result: Any) -> Sequence[Any]:  # noqa: ANN401 - the SDK's answer
    for name in ("output", "results"):
        inner = field(result, name)
        result = result if inner is None else inner
    if field(result, "sequences") is not None:
        return [result]
    status = field(result, "status")
    if status is not None:
        error = field(result, "error")
        told = "" if error is None else f", and its error {shown(field(error, 'message') or error)}"
        raise SampleError(
            f"result is an operation without output, its status is {shown(status)}{told}, expected a finished one: "
            "wait for it, or sample again"
        )
    return objects(result, "results")


def _group(result: Any, prompt: object, name: str | int | None, index: int) -> Group:  # noqa: ANN401 - the SDK's answer
    where = f"results[{index}]"
    sequences = objects(field(result, "sequences"), f"{where}.sequences")
    completions = [_completion(item, f"{where}.sequences[{number}]") for number, item in enumerate(sequences)]
    ids = prompt_ids(prompt, f"prompts[{index}]")
    logprobs = field(result, "prompt_logprobs")
    logprobs = None if is_empty(logprobs) else logprobs  # value 0 is a placeholder already
    try:
        return Group(ids, completions, id=name, prompt_logprobs=logprobs)
    except SampleError as error:
        raise error.reworded(f"{where}: {error}") from error


def _completion(sequence: Any, where: str) -> Any:  # noqa: ANN401 - the SDK's answer
    reason = reason_text(field(sequence, "stop_reason"))
    return completion_at(
        where,
        field(sequence, "tokens"),
        field(sequence, "logprobs"),
        stop_reason=reason.removeprefix("STOP_REASON_").lower() if isinstance(reason, str) else reason,
        routed_experts_key=field(sequence, "routed_experts_key"),
    )
