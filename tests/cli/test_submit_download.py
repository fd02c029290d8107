"""Weights that a run fetches into a folder with files of others: neither is lost, nor are they mixed."""

from __future__ import annotations

import json


def test_a_folder_with_other_files_takes_the_weights_in_a_folder_of_their_own(run, samples, tmp_path, monkeypatch):
    monkeypatch.delenv("TOGETHER_BASE_URL", raising=False)
    trained = tmp_path / "trained"
    trained.mkdir()
    (trained / "README.md").write_text("mine")
    command = ("submit", samples, "-m", "samplekit/tiny", "--batch-size", 10, "--run-dir", tmp_path / "run")
    code, shown, said = run(*command, "--download", trained, "--json")
    summary = json.loads(shown)
    assert (code, "holds 'README.md' beside the" in said) == (0, True)
    assert {path.name for path in trained.iterdir()} == {"README.md", summary["checkpoint"]}
    assert (trained / "README.md").read_text() == "mine"
    files = {str(path) for path in (trained / summary["checkpoint"]).iterdir()}
    assert set(summary["files"]) == files != set()
