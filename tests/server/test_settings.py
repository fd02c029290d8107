"""What a request leaves out is what the protocol's own tables say, and nothing else says it."""

from pathlib import Path

import pytest

import samplekit.server
from samplekit.server.bodies import AdamBody, DrawingBody
from samplekit.server.settings import AdamSettings, DrawingSettings, LoraSettings
from samplekit.wire.names import ADAM_DEFAULTS, LORA_DEFAULTS, SAMPLING_DEFAULTS


@pytest.mark.parametrize(
    ("settings", "table"),
    [
        (LoraSettings(), LORA_DEFAULTS),
        (AdamSettings(learning_rate=1e-3), ADAM_DEFAULTS),
        (AdamBody(), ADAM_DEFAULTS),
        (DrawingSettings(seed=0), SAMPLING_DEFAULTS),
        (DrawingBody(max_tokens=512), SAMPLING_DEFAULTS),
    ],
)
def test_defaults_are_those_of_the_protocol(settings, table):
    assert {name: getattr(settings, name) for name in table} == dict(table)


@pytest.mark.parametrize("table", ["ADAM_DEFAULTS", "LORA_DEFAULTS"])
def test_one_file_of_the_server_reads_each_table(table):
    files = Path(samplekit.server.__file__).parent.glob("*.py")
    assert [file.name for file in files if table in file.read_text("utf-8")] == ["settings.py"]
