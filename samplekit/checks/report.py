"""What a check found: findings with a code, a path into the batch and one sentence, and what the batch holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from samplekit.errors import AlignmentError, LossInputError, SampleError

CODES: Mapping[str, str] = MappingProxyType({
    "empty_batch": "error: the batch holds no sample",
    "invalid_field": "error: a field is missing, unknown or of the wrong type",
    "empty": "error: an array or the model input holds nothing",
    "shape": "error: an array has more than one dimension",
    "token_id": "error: a value is not a token id",
    "not_a_number": "error: a value is not a number",
    "not_finite": "error: a value is NaN or infinite",
    "length_mismatch": "error: an array is not as long as the model input",
    "dtype": "error: a known input has a dtype the service does not take",
    "weights_and_mask": "error: weights and mask exclude each other",
    "missing_input": "error: an input that the loss reads is missing",
    "nothing_trained": "error: no position trains",
    "target_not_next": "error: a trained target is not the next input token",
    "positive_logprob": "error: a log probability is above 0.001 at a trained position",
    "vocabulary": "error: a token id is outside the vocabulary",
    "too_long": "error: the sequence is longer than the limit",
    "unknown_input": "warning: the service does not know this input",
    "unused_input": "warning: the loss does not read this input as it is set",
    "negative_weight": "warning: a weight is below 0",
    "fractional_weight": "warning: the loss counts every non-zero weight as 1",
    "advantage_outside_mask": "warning: an advantage is not 0 where the weight is 0",
    "no_mask": "warning: the sample has neither weights nor mask, and the loss trains or reads every position",
    "zero_logprobs": "warning: log probabilities at trained positions are exactly 0, as padding is",
    "zero_advantages": "warning: every advantage of the batch is 0, so the policy gradient is 0",
    "constant_group": "warning: every advantage of a group is 0",
    "single_completion": "warning: a group holds one completion, which is compared with nothing",
    "trained_share": "warning: the trained share is outside the expected one",
})  # fmt: skip
"""Every code a finding may carry, with what it means."""

_RAISED = {
    "length_mismatch": AlignmentError,
    "empty": AlignmentError,
    "shape": AlignmentError,
    "missing_input": LossInputError,
    "dtype": LossInputError,
}
_SHOWN = 20


@dataclass(frozen=True)
class Finding:
    """One fault.

    Attributes:
        code: one of `samplekit.checks.CODES`.
        path: where it is, such as ``samples[17].loss_fn_inputs['logprobs']``.
        message: where, what was found, what was expected and what to do, in one sentence.
    """

    code: str
    path: str
    message: str


@dataclass(frozen=True)
class Report:
    """What `check` found.

    Attributes:
        errors: faults that make the batch train something wrong, or be refused.
        warnings: what is likely not meant.
        stats: num_samples, num_tokens (positions read), num_trained, trained_share, and lengths (min, median, mean,
            max, in positions).
    """

    errors: Sequence[Finding] = ()
    warnings: Sequence[Finding] = ()
    stats: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def ok(self) -> bool:
        """Tell whether there is no error."""
        return not self.errors

    def raise_for_errors(self) -> Report:
        """Raise when there is an error, else give the report back.

        Raises:
            SampleError: the first error's kind, with up to twenty errors in its message.
        """
        if not self.errors:
            return self
        lines = [item.message for item in self.errors[:_SHOWN]]
        if len(self.errors) > _SHOWN:
            lines.append(f"and {len(self.errors) - _SHOWN} more errors")
        raise _RAISED.get(self.errors[0].code, SampleError)("\n".join(lines))

    def to_dict(self) -> dict[str, Any]:
        """Give the report as plain data, for JSON."""
        return {
            "ok": self.ok,
            "errors": [asdict(item) for item in self.errors],
            "warnings": [asdict(item) for item in self.warnings],
            "stats": dict(self.stats),
        }

    def __str__(self) -> str:
        stats = self.stats
        head = (
            f"{stats.get('num_samples', 0):,} samples, {stats.get('num_tokens', 0):,} tokens, "
            f"{stats.get('num_trained', 0):,} trained ({stats.get('trained_share', 0.0):.1%}); "
            f"{_counted(self.errors, 'error')}, {_counted(self.warnings, 'warning')}"
        )
        lines = [
            f"  {kind} [{item.code}] {item.message}"
            for kind, items in (("error", self.errors), ("warning", self.warnings))
            for item in items[:_SHOWN]
        ]
        hidden = max(0, len(self.errors) - _SHOWN) + max(0, len(self.warnings) - _SHOWN)
        return "\n".join([head, *lines, *([f"  and {hidden} more"] if hidden else [])])


def _counted(items: Sequence[Finding], word: str) -> str:
    return f"{len(items):,} {word}{'s' * (len(items) != 1)}"
