"""The main job in small: the recipe trains on the local service, and on one it reaches over HTTP."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

import samplekit as sk
from samplekit.files import check_lock

RECIPE = Path(__file__).parents[2] / "cookbook" / "sft.py"
SMALL = ["--limit", "60", "--epochs", "2", "--batch-size", "8", "--data", str(RECIPE.parent / "data" / "tasks.jsonl")]


def recipe(folder, *arguments, env=None):
    done = subprocess.run(
        [sys.executable, "-W", "error::UserWarning", RECIPE, "--run-dir", folder, *SMALL, *arguments],
        capture_output=True, text=True, timeout=300, env={**os.environ, **(env or {}), "COLUMNS": "200"}, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def check_run(folder, shown):
    samples = list(sk.read_samples(folder / "samples.jsonl"))
    assert check_lock(folder / "samples.jsonl", sk.ChatTemplate.load("samplekit/tiny"))["samples"][
        "num_samples"
    ] == len(samples)
    metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert [row["step"] for row in metrics] == list(range(1, len(metrics) + 1))
    assert sum(row["num_trained"] for row in metrics) == 2 * sum(sample.num_trained for sample in samples)
    assert (folder / "loss.svg").read_text().lstrip().startswith("<?xml")
    before, after = (float(part.split()[0]) for part in shown.split("held-out loss per token: ")[1].split(" before, "))
    assert after < 0.9 * before
    assert shown.count("generated") == 3
    assert shown.count("trained (green)") == 2


def test_the_recipe_leaves_a_run_folder_and_a_model_that_learned(tmp_path):
    check_run(tmp_path / "run", recipe(tmp_path / "run"))


def test_rows_that_are_no_conversation_are_named_and_left_out(tmp_path):
    rows = (RECIPE.parent / "data" / "tasks.jsonl").read_text("utf-8").splitlines()[:12]
    data = tmp_path / "mine.jsonl"
    data.write_text("\n".join([*rows[:5], "{cut", *rows[5:]]), "utf-8")
    shown = recipe(tmp_path / "run", "--data", data, "--epochs", "1")
    (skipped,) = [line for line in shown.splitlines() if line.startswith("skipped")]
    assert skipped.startswith(f"skipped [file_format] {data}:6 is not JSON")
    assert len(list(sk.read_samples(tmp_path / "run" / "samples.jsonl"))) == 11


def test_the_same_recipe_trains_an_adapter_on_a_served_model(tmp_path):
    secret = {"SAMPLEKIT_TOKEN": "secret-token", "TOGETHER_API_KEY": "secret-token"}
    command = [sys.executable, "-c", "from samplekit.cli import main; main()", "serve", "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **secret}) as service:
        try:
            url = service.stdout.readline().split(" on ")[1].split()[0]
            options = ["--base-url", url, "--lora-rank", "8", "--learning-rate", "1e-2"]
            shown = recipe(tmp_path / "run", *options, env=secret)
        finally:
            service.terminate()
    check_run(tmp_path / "run", shown)
    assert "secret-token" not in shown


@pytest.mark.slow
def test_the_whole_job_lowers_the_held_out_loss_by_a_third_in_four_minutes(tmp_path):
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, RECIPE, "--run-dir", tmp_path], capture_output=True, text=True, timeout=900, check=False
    )
    assert done.returncode == 0, done.stderr
    before, after = (
        float(part.split()[0]) for part in done.stdout.split("held-out loss per token: ")[1].split(" before, ")
    )
    assert after < before * 2 / 3
    assert time.monotonic() - start < 240
