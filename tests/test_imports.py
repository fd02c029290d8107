"""What importing and using the ground floor loads, seen from a process of its own."""

import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "httpx", "starlette")


def loaded_by(code):
    """The modules of note that a fresh interpreter has loaded after some code."""
    names = (*HEAVY, "uvicorn", "pydantic", "numpy", "click", "rich", "jinja2", "tokenizers", "peft")
    report = f"import sys; print(*[name for name in {names} if name in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", f"{code}\n{report}"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines()[-1].split())


USE_THE_GROUND_FLOOR = """
import samplekit as sk
sample = sk.build_sample([1, 2, 3], [0, 1, 1], advantages=0.5, logprobs=[0, -1, -1])
sk.check([sample, sample.to_wire()], loss=sk.GRPO()).raise_for_errors()
assert sk.Sample.from_wire(sample.to_wire()) == sample and sample.to_json()
try:
    sk.build_sample([1, True], [0, 1])
except sk.SampleError:
    pass
"""
TAKE_A_TENSOR_LIKE = """
import samplekit as sk
class Tensor:
    def detach(self): return self
    def cpu(self): return self
    def numpy(self):
        import numpy
        return numpy.array([1, 2])
sk.build_sample(Tensor(), [0, 1])
"""


def test_importing_the_package_loads_nothing_heavy_not_even_numpy():
    assert loaded_by("import samplekit") == set()


def test_listing_the_names_and_catching_errors_loads_nothing_heavy():
    assert loaded_by("import samplekit; dir(samplekit); samplekit.SampleError; samplekit.__version__") == set()


@pytest.mark.parametrize("code", [USE_THE_GROUND_FLOOR, TAKE_A_TENSOR_LIKE], ids=["samples", "a tensor's surface"])
def test_using_the_ground_floor_loads_numpy_and_pydantic_only(code):
    assert loaded_by(code) == {"numpy", "pydantic"}


@pytest.mark.parametrize("module", ["errors", "sample", "losses", "build", "rollouts", "checks"])
def test_every_module_of_the_ground_floor_imports_alone(module):
    assert not loaded_by(f"import samplekit.{module}") & {*HEAVY, "click", "rich", "jinja2", "tokenizers"}


def test_the_probe_sees_a_heavy_module_when_there_is_one():
    assert "httpx" in loaded_by("import httpx")
