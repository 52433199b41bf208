"""The words of ``standalone.py``."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sd_webui_spillway.bootstrap import main
from sd_webui_spillway.bootstrap import stacks as stacks_module
from sd_webui_spillway.bootstrap.stacks import STACKS

ROOT = Path(__file__).resolve().parents[2]


def one_sentence(text: str) -> str:
    assert text.count("\n") == 1, text
    assert "Traceback" not in text
    return text.strip()


def test_help_and_no_words(tmp_path, capsys):
    assert main(tmp_path, ["--help"]) == 0
    assert "test [--stack NAME] [-- ARGUMENTS]" in capsys.readouterr().out
    assert main(tmp_path, []) == 2
    said = capsys.readouterr().out
    assert all(name in said for name in STACKS)


def test_an_interpreter_that_is_not_there(tmp_path, capsys, commands):
    assert main(tmp_path, ["--python", str(tmp_path / "no" / "python"), "demo"]) == 3
    assert str(tmp_path / "no" / "python") in one_sentence(capsys.readouterr().err)
    assert main(tmp_path, ["--python", str(tmp_path), "demo"]) == 3
    assert "cannot be run" in one_sentence(capsys.readouterr().err)
    assert commands == []


@pytest.mark.parametrize("words", [["--python"], ["test", "fast"], ["test", "--stack"], ["test", "--stack", "x"]])
def test_words_that_make_no_sense(tmp_path, capsys, commands, words):
    assert main(tmp_path, words) == 2
    one_sentence(capsys.readouterr().err)
    assert commands == []
    assert list(tmp_path.iterdir()) == []


def test_an_interpreter_that_lacks_packages(tmp_path, capsys, stub, commands):
    stub.answer("other", 0, '["torch", "open_clip"]')
    assert main(tmp_path, ["--python", str(stub.path), "demo"]) == 3
    said = one_sentence(capsys.readouterr().err)
    assert "lacks torch, open_clip_torch" in said
    assert f'"{stub.path}" -m pip install --no-deps torch open_clip_torch' in said
    assert commands == []
    assert [call[0] for call in stub.calls()] == ["-c"]  # it was asked, and nothing was installed


def test_an_interpreter_that_is_none(tmp_path, capsys, stub, commands):
    stub.answer("other", 1, "")
    assert main(tmp_path, ["--python", str(stub.path), "demo"]) == 3
    assert "is no usable Python" in one_sentence(capsys.readouterr().err)


def test_an_interpreter_that_has_everything_runs_the_command(tmp_path, stub, commands):
    stub.answer("other", 0, "[]")
    assert main(tmp_path, ["--python", str(stub.path), "generate", "a cat", "--steps", "3"]) == 7
    assert commands == [[str(stub.path), "-m", "sd_webui_spillway", "generate", "a cat", "--steps", "3"]]


def test_arguments_after_two_dashes_go_to_pytest(tmp_path, stub, commands):
    assert main(tmp_path, ["--python", str(stub.path), "test", "--", "-k", "a or b", "-x"]) == 7
    assert commands == [[str(stub.path), "-m", "pytest", "-k", "a or b", "-x"]]


def test_tests_run_in_an_environment_of_their_own(project, stub, commands, monkeypatch):
    from sd_webui_spillway.bootstrap.environment import Environment

    monkeypatch.setattr(Environment.__init__, "__defaults__", ((), str(stub.path), "spillway-installed.json", None))
    assert main(project, ["test", "--", "-q"]) == 7
    assert commands == [[str(project / ".venv" / "bin" / "python"), "-m", "pytest", "-q"]]
    installed = [call[-1] for call in stub.calls() if call[1] == "pip"]
    assert [Path(path).name for path in installed] == ["standalone.txt", "vocabulary.txt", project.name, "test.txt"]
    assert main(project, ["memory"]) == 7
    assert commands[-1][1:] == ["-m", "sd_webui_spillway", "memory"]
    assert stub.calls() == []


def test_a_stack_runs_its_own_tests_with_the_arguments(project, stub, commands, monkeypatch, tmp_path):
    monkeypatch.setattr(stacks_module, "cache_folder", lambda: tmp_path / "stacks")
    monkeypatch.setattr(stacks_module, "_python_for", lambda stack: str(stub.path))
    assert main(project, ["test", "--stack", "gradio-3", "--", "-k", "one"]) == 7
    (command,) = commands
    assert command[1:3] == ["-m", "pytest"]
    assert command[3:] == [*STACKS["gradio-3"].tests, "-k", "one"]
    assert Path(command[0]).is_relative_to(tmp_path / "stacks" / "gradio-3")


def test_a_stack_that_cannot_be_is_skipped_with_a_sentence(tmp_path, capsys, commands, monkeypatch):
    monkeypatch.setattr(stacks_module, "_python_for", lambda stack: None)
    assert main(tmp_path, ["test", "--stack", "a1111"]) == 0
    said = one_sentence(capsys.readouterr().out)
    assert said == "The tests on a1111 are skipped, because it needs Python 3.10, and none was found."
    monkeypatch.setattr(stacks_module, "_python_for", lambda stack: sys.executable)
    monkeypatch.setattr(stacks_module, "cache_folder", lambda: tmp_path / "stacks")
    monkeypatch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(2**40, 2**40, 2**30))
    assert main(tmp_path, ["test", "--stack", "forge"]) == 0
    assert "it needs 7 GiB of disk and 1.0 GiB are free" in one_sentence(capsys.readouterr().out)
    assert commands == []


def test_the_exit_code_and_the_import_path_reach_the_command(tmp_path):
    from tests.bootstrap.conftest import main_module

    run = main_module(main)._run
    assert run([sys.executable, "-c", "import sys; sys.exit(5)"], ROOT) == 5
    assert run([sys.executable, "-c", "import sd_webui_spillway"], ROOT) == 0


def test_an_older_python_gets_a_sentence_and_no_traceback():
    older = next(filter(None, map(older_python, ("3.9", "3.8", "3.7"))), None)
    if older is None:
        pytest.skip("needs a Python from 3.7 to 3.9 beside this one")
    result = subprocess.run([older, str(ROOT / "standalone.py"), "demo"], capture_output=True, text=True, check=False)
    assert result.returncode != 0
    assert one_sentence(result.stderr).startswith("Python 3.10 or newer is needed; this is 3.")


def older_python(version: str) -> str | None:
    candidates = [shutil.which(f"python{version}"), *map(str, stacks_module.Path.home().glob(
        f".pyenv/versions/{version}.*/bin/python"))]  # fmt: skip
    for candidate in filter(None, candidates):
        if stacks_module._version_of([candidate]) == tuple(map(int, version.split("."))):
            return candidate
    return None
