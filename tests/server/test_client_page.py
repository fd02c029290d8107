"""docs/client.md: its programs run as printed, one after the other."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/client.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE, flags=re.DOTALL)


@pytest.fixture(scope="module")
def names():
    """Give what the page's programs left behind."""
    found = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(ROOT)
        for block in BLOCKS:
            exec(compile(block, "docs/client.md", "exec"), found)
    return found


def test_two_steps_in_flight_learn_and_go_on_where_they_were(names):
    assert names["after"] < names["before"] - 0.5
    assert {file.name for file in names["files"]} >= {"adapter_config.json", "adapter_model.safetensors"}
    assert names["training"].step == 8


def test_another_process_collects_what_this_one_submitted(names):
    assert len(names["group"].completions) == 2
    assert names["group"].prompt.tolist() == names["prompts"][0]


def test_the_async_client_trains(names):
    assert names["step"] == 1
    assert all(loss > 1 for loss in names["losses"])


def test_sessions_on_the_same_resources_train_by_muon(names):
    assert names["one"].id != names["two"].id
    assert [step.result() for step in names["steps"]] == [1, 1]  # collected before, and kept
