"""Records -> the arrays a training loop consumes: labels, positions, boundaries, masks. For trainers of one's own."""

from samplekit.batching.batch import FLUSH, SampleBatch, batch
from samplekit.batching.labels import labels_from_mask
from samplekit.batching.masks import block_diagonal_mask
from samplekit.batching.unpack import unpack

__all__ = ["FLUSH", "SampleBatch", "batch", "block_diagonal_mask", "labels_from_mask", "unpack"]
