"""What crosses the wire: Sample and its parts, and the one way any array becomes theirs."""

from samplekit.sample.parts import Chunk, EncodedText, ModelInput
from samplekit.sample.sample import KNOWN_DTYPES, Sample, describe, trusted_sample
from samplekit.sample.tensor import Dtype, TensorData

__all__ = [
    "KNOWN_DTYPES",
    "Chunk",
    "Dtype",
    "EncodedText",
    "ModelInput",
    "Sample",
    "TensorData",
    "describe",
    "trusted_sample",
]
