"""Row "JSON": samples become the bytes of a request, printed at once from samples that are there."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np
import orjson

from benchmarks.forms import FORMS, SDK_DICTS, TINKER, wire_arrays
from benchmarks.meters import cpu_time, output_bytes
from benchmarks.rollouts import rollouts
from benchmarks.row import FLOOR, OURS, Case, Gate, Reading, Row, Size, Work, offer, require

SDK = "SDK client"
PROTOBUF = "tinker protobuf"
LOSS: Literal["importance_sampling"] = "importance_sampling"


def _prepare(size: Size) -> Case:
    loads: Mapping[str, Callable[[Size], Work]] = {OURS: _ours, FLOOR: _floor, SDK: _sdk, PROTOBUF: _tinker}
    contenders, skipped = offer({name: partial(load, size) for name, load in loads.items()})
    return Case(contenders, _normal, skipped)


def _built(form: str, size: Size) -> list[Any]:
    build = FORMS[form]()
    return [build(rollout) for rollout in rollouts(size)]


def _ours(size: Size) -> Work:
    samples = _built(OURS, size)
    return lambda: b",".join([sample.to_json() for sample in samples])  # brackets belong to the body around it


def _floor(size: Size) -> Work:
    """Print the same arrays, float32 and int64, with orjson in one call."""
    samples = [_array_sample(sample) for sample in _built(OURS, size)]
    return lambda: orjson.dumps(samples, option=orjson.OPT_SERIALIZE_NUMPY)


def _array_sample(sample: Any) -> dict[str, Any]:
    inputs = {
        name: {"data": np.array(tensor.data), "dtype": tensor.dtype} for name, tensor in sample.loss_fn_inputs.items()
    }
    tokens = np.array(sample.model_input.tokens)
    return {"model_input": {"chunks": [{"encoded_text": {"tokens": tokens}}]}, "loss_fn_inputs": inputs}


def _sdk(size: Size) -> Work:
    """Do what together's client does with samples that it has coerced: its transform, then its dumps."""
    write = _sdk_writer()
    samples = _built(SDK_DICTS, size)
    return lambda: write(samples)


def _tinker(size: Size) -> Work:
    """Do what tinker's client does: its requests are protobuf, arrays as raw bytes, which our service does not read."""
    require("tinker")
    from tinker import types
    from tinker.proto.request_conv import forward_backward_request_to_proto

    data = _built(TINKER, size)

    def work() -> bytes:
        batch = types.ForwardBackwardInput(data=data, loss_fn=LOSS)
        request = types.ForwardBackwardRequest(forward_backward_input=batch, model_id="model", seq_id=1)
        body: bytes = forward_backward_request_to_proto(request).SerializeToString()
        return body

    return work


def _sdk_writer() -> Callable[[list[Any]], bytes]:
    """Give the two lines of `prepare_operation_body` that make the bytes."""
    require("together.post_training")
    from together._utils import transform
    from together.types.post_training.operation_forward_backward_params import OperationForwardBackwardParams

    def write(samples: list[Any]) -> bytes:
        body = {"loss": {"type": f"LOSS_TYPE_{LOSS.upper()}"}, "samples": samples}
        serialized = transform(body, expected_type=OperationForwardBackwardParams)
        return json.dumps(serialized, separators=(",", ":"), allow_nan=False).encode()

    return write


def _normal(name: str, body: bytes) -> list[dict[str, list[float]]]:
    if name == PROTOBUF:
        return _read_protobuf(body)
    read = json.loads(b"[%s]" % body if name == OURS else body)
    return [wire_arrays(sample) for sample in (read if isinstance(read, list) else read["samples"])]


def _read_protobuf(body: bytes) -> list[dict[str, list[float]]]:
    from tinker.proto import tinker_public_pb2 as proto

    samples: list[dict[str, list[float]]] = []
    for datum in proto.ForwardBackwardRequest.FromString(body).data:
        arrays = {"tokens": np.frombuffer(datum.model_input[0].encoded_text.tokens, dtype=np.int32)}
        for name, tensor in datum.loss_fn_inputs.items():
            dtype = np.int64 if tensor.dtype == proto.DTYPE_INT64 else np.float32
            arrays[name] = np.frombuffer(tensor.dense, dtype=dtype)
        samples.append({name: values.astype(np.float32).tolist() for name, values in arrays.items()})
    return samples


ROW = Row(
    key="json",
    work="JSON",
    prepare=_prepare,
    readings=[
        Reading("CPU time", cpu_time, (Gate(SDK, 13), Gate(FLOOR, 1.0, "floor"), Gate(PROTOBUF))),
        Reading(
            "bytes sent",
            output_bytes,
            (Gate(SDK, 0.72, "floor"), Gate(FLOOR, None, "floor"), Gate(PROTOBUF, None, "floor")),
        ),
    ],
)
