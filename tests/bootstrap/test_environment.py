"""An environment is made once, brought up to changed pins, and says in one sentence why it cannot be made."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from sd_webui_spillway.bootstrap.environment import Environment, SetupError


def environment(stub, tmp_path, *names: str, mark: str = "installed.json") -> Environment:
    return Environment(tmp_path / "venv", [tmp_path / name for name in names], (), str(stub.path), mark)


@pytest.fixture
def pins(tmp_path) -> Path:
    path = tmp_path / "pins.txt"
    path.write_text("one==1.0\n")
    return path


def test_the_second_time_nothing_is_run(stub, tmp_path, pins):
    environment(stub, tmp_path, "pins.txt").ensure()
    first = stub.calls()
    assert first[0][:2] == ["-m", "venv"]
    assert [call[:3] for call in first[1:]] == [["-m", "pip", "install"]]
    assert first[1][-2:] == ["-r", str(pins)]
    environment(stub, tmp_path, "pins.txt").ensure()
    assert stub.calls() == []


def test_changed_pins_are_installed_into_the_same_environment(stub, tmp_path, pins):
    environment(stub, tmp_path, "pins.txt").ensure()
    kept = tmp_path / "venv" / "kept"
    kept.write_text("")
    stub.calls()
    pins.write_text("one==2.0\n")
    environment(stub, tmp_path, "pins.txt").ensure()
    assert [call[:3] for call in stub.calls()] == [["-m", "pip", "install"]]
    assert kept.exists()
    environment(stub, tmp_path, "pins.txt").ensure()
    assert stub.calls() == []


def test_a_change_in_an_included_file_counts(stub, tmp_path, pins):
    outer = tmp_path / "outer.txt"
    outer.write_text("-r pins.txt\ntwo==1\n")
    environment(stub, tmp_path, "outer.txt").ensure()
    stub.calls()
    pins.write_text("one==3.0\n")
    environment(stub, tmp_path, "outer.txt").ensure()
    assert len(stub.calls()) == 1


def test_an_install_that_was_cut_off_is_done_again(stub, tmp_path, pins):
    stub.answer("pip", 1, "ERROR: No matching distribution found for one==1.0")
    with pytest.raises(SetupError):
        environment(stub, tmp_path, "pins.txt").ensure()
    stub.calls()
    stub.answer("pip", 0, "")
    environment(stub, tmp_path, "pins.txt").ensure()
    assert [call[:3] for call in stub.calls()] == [["-m", "pip", "install"]]


def test_an_environment_whose_interpreter_went_away_is_made_anew(stub, tmp_path, pins):
    made = environment(stub, tmp_path, "pins.txt")
    made.ensure()
    made.python.unlink()
    stub.calls()
    made.ensure()
    assert [call[1] for call in stub.calls()] == ["venv", "pip"]


def test_going_between_two_marks_installs_nothing_again(stub, tmp_path, pins):
    (tmp_path / "more.txt").write_text("pytest\n")
    for _ in range(2):
        environment(stub, tmp_path, "pins.txt").ensure()
        environment(stub, tmp_path, "more.txt", mark="more.json").ensure()
    assert [call[1] for call in stub.calls()] == ["venv", "pip", "pip"]


def test_packages_without_their_dependencies(stub, tmp_path, pins):
    Environment(tmp_path / "venv", [], [pins], str(stub.path)).ensure()
    assert "--no-deps" in stub.calls()[1]


@pytest.mark.parametrize(
    ("output", "said"),
    [
        ("Collecting one\nERROR: No matching distribution found for one==1.0\n", "No matching distribution found"),
        ("Killed\n", "Killed"),
        ("", "pins failed"),
    ],
)
def test_a_failing_pip_is_one_sentence(stub, tmp_path, pins, output, said):
    stub.answer("pip", 1, output)
    with pytest.raises(SetupError, match=said) as caught:
        environment(stub, tmp_path, "pins.txt").ensure()
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("Installing pins failed: ")


def test_a_failing_venv_is_one_sentence(stub, tmp_path, pins):
    stub.answer("venv", 1, "The virtual environment was not created\nensurepip is not available")
    with pytest.raises(SetupError, match=r"An environment cannot be made in .*ensurepip is not available") as caught:
        environment(stub, tmp_path, "pins.txt").ensure()
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "venv").exists(), "what failed half way must not pass for an environment next time"


def test_a_base_interpreter_that_is_not_there_is_one_sentence(tmp_path, pins):
    with pytest.raises(SetupError, match="nowhere") as caught:
        Environment(tmp_path / "venv", [pins], (), str(tmp_path / "nowhere")).ensure()
    assert "\n" not in str(caught.value)


def test_a_folder_that_cannot_be_written_is_one_sentence(stub, tmp_path, pins):
    (tmp_path / "file").write_text("")
    with pytest.raises(SetupError, match="file") as caught:
        Environment(tmp_path / "file" / "venv", [pins], (), sys.executable).ensure()
    assert "\n" not in str(caught.value)


def test_a_missing_list_of_packages_is_one_sentence(stub, tmp_path):
    with pytest.raises(SetupError, match=r"gone\.txt") as caught:
        environment(stub, tmp_path, "gone.txt").ensure()
    assert "\n" not in str(caught.value)


def test_each_package_is_shown_as_it_is_collected(stub, tmp_path, pins, capfd):
    stub.answer("pip", 0, "Collecting one==1.0\n  Downloading one-1.0.whl (3 kB)\nInstalling collected packages: one")
    environment(stub, tmp_path, "pins.txt").ensure()
    shown = capfd.readouterr().err
    assert "pins: 1 packages, one (" in shown
    assert "downloading one-1.0.whl (3 kB)" in shown
    assert "pins installed in" in shown


def test_a_real_environment_is_made_and_runs(tmp_path, capfd):
    empty = tmp_path / "empty.txt"
    empty.write_text("# nothing to install\n")
    made = Environment(tmp_path / "venv", [empty])
    made.ensure()
    ask = [made.python, "-c", "import sys; print(sys.prefix)"]
    said = subprocess.run(ask, capture_output=True, text=True, check=True)
    assert Path(said.stdout.strip()).resolve() == (tmp_path / "venv").resolve()
    capfd.readouterr()
    made.ensure()
    assert capfd.readouterr().err == ""
