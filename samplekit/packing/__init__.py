"""Rows that fill a context: which records share one, and what stands in it. For local trainers, never on the wire."""

from samplekit.packing.balance import balance
from samplekit.packing.lengths import Oversize
from samplekit.packing.pack import UNTRAINED, PackedRows, Untrained, pack
from samplekit.packing.packed import PackedRecord
from samplekit.packing.plan import STRATEGIES, Plan, Strategy, plan_packing
from samplekit.packing.read import TOKENS_FIELDS, read_record
from samplekit.packing.record import Record
from samplekit.packing.streaming import StreamingPacker

__all__ = [
    "STRATEGIES",
    "TOKENS_FIELDS",
    "UNTRAINED",
    "Oversize",
    "PackedRecord",
    "PackedRows",
    "Plan",
    "Record",
    "Strategy",
    "StreamingPacker",
    "Untrained",
    "balance",
    "pack",
    "plan_packing",
    "read_record",
]
