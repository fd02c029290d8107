"""The three exercises worked by hand: the mean loss, the five lengths, the supervised share.

The first two stand in losses.md and batching.md. For the third no page has numbers; it is the first one's sequence: 3 of
26 positions train.
"""

import numpy as np
import pytest
import torch

import samplekit as sk
from samplekit.training import PackingCollator, compute_loss

LOSSES = (0.50, 1.00, 0.30)
POSITIONS = 26


def sample():
    """27 tokens, so 26 positions, of which the last three train."""
    return sk.build_sample(range(100, 127), [0] * 24 + [1, 1, 1])


def test_1_the_mean_is_over_trained_tokens_and_not_a_factor_of_26_thirds_less():
    logprobs = torch.zeros(POSITIONS, dtype=torch.float64)
    logprobs[23:] = -torch.tensor(LOSSES, dtype=torch.float64)
    out = compute_loss([logprobs], [sample()], sk.CrossEntropy())
    assert float(out.loss) == pytest.approx(1.80, abs=1e-12)
    mean = float(out.loss) / out.num_trained
    assert f"{mean:.3f}" == "0.600"
    wrong = float(out.loss) / POSITIONS
    assert f"{wrong:.4f}" == "0.0692"
    assert mean / wrong == pytest.approx(26 / 3, abs=1e-12)


def test_2_five_lengths_in_rows_of_1024():
    lengths = [700, 500, 450, 300, 150]
    rows = sk.pack([[7] * length for length in lengths], 1024, pad_id=0)
    assert {frozenset(row.seq_lens.tolist()) for row in rows} == {
        frozenset({700, 300}), frozenset({500, 450}), frozenset({150}),
    }  # fmt: skip
    alone = sum(lengths) / (len(lengths) * 1024)
    assert (f"{alone:.1%}", f"{rows.plan.utilization:.1%}") == ("41.0%", "68.4%")


def test_3_the_supervised_share_is_the_same_in_the_report_the_arrays_and_the_labels_of_a_trainer():
    stats = sk.check([sample()]).stats
    assert (stats["num_trained"], stats["num_tokens"]) == (3, POSITIONS)
    assert f"{stats['trained_share']:.1%}" == "11.5%"
    rows = sk.SampleBatch(sk.pack([sk.Record.from_sample(sample())], 64, pad_id=0))
    arrays = rows.to_training(return_labels=True, return_num_valid_tokens=True, return_padding_mask=True)
    positions = np.count_nonzero(~arrays["padding_mask"]) - 1  # the last token predicts nothing
    assert (arrays["num_valid_tokens"], positions) == (3, POSITIONS)
    labels = PackingCollator(64, pad_id=0)(rows.records)["labels"]
    assert (labels != -100).sum() / POSITIONS == pytest.approx(3 / 26)
    assert sk.check([sample()], expected_share=(0.11, 0.12)).warnings == []
    (finding,) = sk.check([sample()], expected_share=(0.2, 0.9)).warnings
    assert finding.code == "trained_share"
