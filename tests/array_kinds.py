"""Every kind of sequence in which callers hold ids and numbers, and how a plain list becomes each of them."""

from array import array
from collections import deque

import numpy as np
import torch


class OtherDeviceTensor:
    """A tensor that cannot be read before detach() and cpu(), and has nothing else of torch's surface but numpy()."""

    def __init__(self, values, *, detached=False, on_cpu=False):
        self.values, self.detached, self.on_cpu = values, detached, on_cpu

    def detach(self):
        return OtherDeviceTensor(self.values, detached=True, on_cpu=self.on_cpu)

    def cpu(self):
        return OtherDeviceTensor(self.values, detached=self.detached, on_cpu=True)

    def numpy(self):
        if not (self.detached and self.on_cpu):
            raise TypeError("can't convert a tensor that requires grad, or one on another device, to numpy")
        return np.asarray(self.values)


INT_DTYPES = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
FLOAT_DTYPES = ("float16", "float32", "float64", "longdouble")


def _numpy(dtype):
    return lambda values: np.array(values, dtype=dtype)


def _torch(dtype, **options):
    return lambda values: torch.tensor(values, dtype=dtype, **options)


INT_KINDS = {
    "list": list,
    "tuple": tuple,
    "deque": deque,
    "array.array": lambda values: array("i", values),
    "list of numpy ints": lambda values: [np.int16(value) for value in values],
    "list of 0-d tensors": lambda values: list(torch.tensor(values)),
    "numpy object": _numpy(object),
    "numpy strided": lambda values: np.repeat(np.array(values), 2)[::2],
    "numpy big-endian": _numpy(">i4"),
    "torch int32": _torch(torch.int32),
    "torch int64": _torch(torch.int64),
    "torch strided": lambda values: torch.tensor(values).repeat_interleave(2)[::2],
    "another device": lambda values: OtherDeviceTensor(np.array(values, dtype=np.int32)),
    **{f"numpy {dtype}": _numpy(dtype) for dtype in INT_DTYPES},
}

# Values in these must be exact in bfloat16 and float8: halves and small whole numbers.
FLOAT_KINDS = {
    **INT_KINDS,
    "list of floats": lambda values: [float(value) for value in values],
    "tuple of floats": lambda values: tuple(float(value) for value in values),
    "list of numpy floats": lambda values: [np.float32(value) for value in values],
    "list of 0-d float tensors": lambda values: list(torch.tensor(values, dtype=torch.float32, requires_grad=True)),
    "array of floats": lambda values: array("d", values),
    "torch float16": _torch(torch.float16),
    "torch float32 with grad": _torch(torch.float32, requires_grad=True),
    "torch float64": _torch(torch.float64),
    "torch bfloat16 with grad": _torch(torch.bfloat16, requires_grad=True),
    "torch float8": lambda values: torch.tensor(values, dtype=torch.float32).to(torch.float8_e4m3fn),
    "another device, float": lambda values: OtherDeviceTensor(np.array(values, dtype=np.float64)),
    **{f"numpy {dtype}": _numpy(dtype) for dtype in FLOAT_DTYPES},
}

BOOL_KINDS = {
    "list of bools": lambda values: [bool(value) for value in values],
    "tuple of bools": lambda values: tuple(bool(value) for value in values),
    "list of numpy bools": lambda values: [np.bool_(value) for value in values],
    "list of 0-d bool tensors": lambda values: list(torch.tensor(values, dtype=torch.bool)),
    "numpy bool": _numpy(np.bool_),
    "torch bool": _torch(torch.bool),
}
