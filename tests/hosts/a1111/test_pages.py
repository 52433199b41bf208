"""The axes of the X/Y/Z plot, and our settings on the webui's own page."""

from __future__ import annotations

import types

import pytest

from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.hosts.a1111.settings_page import BADGES, CAP, INFOTEXT, PROFILE, SettingsPage
from sd_webui_spillway.hosts.a1111.xyz import CAP_AXIS, PROFILE_AXIS, XyzAxes
from sd_webui_spillway.placement.profile import Profile
from sd_webui_spillway.units import GIB


class AxisOption:
    def __init__(self, label, type, apply, confirm=None, choices=None) -> None:  # noqa: A002
        self.label, self.type, self.apply, self.confirm, self.choices = label, type, apply, confirm, choices


class Options:
    """The webui's store: a value is put in first and its ``onchange`` called then."""

    def __init__(self) -> None:
        self.data, self.data_labels = {"spillway_profile": "lowvram"}, {}

    def add_option(self, key, info) -> None:
        self.data_labels[key] = info
        self.data.setdefault(key, info.default)

    def set(self, key, value) -> None:
        self.data[key] = value
        self.data_labels[key].onchange()


class OptionInfo:
    def __init__(self, default=None, label="", component=None, component_args=None, onchange=None, section=None):
        self.default, self.label, self.component, self.component_args = default, label, component, component_args
        self.onchange, self.section = onchange, section


@pytest.fixture
def plot(rig):
    script = types.SimpleNamespace(AxisOption=AxisOption, axis_options=[AxisOption("Nothing", str, None)])
    data = types.SimpleNamespace(module=script)
    rig.webui["scripts"].scripts_data.extend([data, data, types.SimpleNamespace(module=types.SimpleNamespace())])
    return script


def test_the_axes_come_once_and_go(rig, plot):
    axes = XyzAxes(rig.session)
    axes.add()
    axes.add()
    XyzAxes(rig.session).add()
    assert [option.label for option in plot.axis_options] == ["Nothing", PROFILE_AXIS, CAP_AXIS]
    axes.remove()
    assert [option.label for option in plot.axis_options] == ["Nothing"]


def test_a_cell_asks_for_a_profile_that_there_is(rig, plot):
    XyzAxes(rig.session).add()
    _, profile, cap = plot.axis_options
    assert "lowvram" in profile.choices()
    assert "stream" not in profile.choices()
    profile.confirm(None, ["auto", "LowVRAM"])
    with pytest.raises(RuntimeError, match="no profile “huge”"):
        profile.confirm(None, ["auto", "huge"])
    with pytest.raises(RuntimeError, match="cannot be negative"):
        cap.confirm(None, [1.0, -1.0])
    p = types.SimpleNamespace()
    profile.apply(p, "LowVRAM", [])
    cap.apply(p, 1.5, [])
    assert (p.spillway_profile, p.spillway_cap_bytes) == (Profile.LOWVRAM, GIB * 3 // 2)


@pytest.fixture
def options(rig):
    shared = rig.webui["shared"]
    shared.opts, shared.OptionInfo = Options(), OptionInfo
    shared.gr = types.SimpleNamespace(Dropdown=object(), Number=object())
    return shared.opts


def test_the_session_knows_better_than_a_stored_page(rig, options):
    SettingsPage(rig.session).add()
    assert options.data[PROFILE] == "auto"
    assert {option.section for option in options.data_labels.values()} == {("spillway", "Spillway")}


def test_a_change_in_either_place_shows_in_the_other(rig, options):
    page = SettingsPage(rig.session)
    page.add()
    options.set(PROFILE, "lowvram")
    options.set(CAP, 2)
    options.set(BADGES, False)
    options.set(INFOTEXT, False)
    assert rig.session.settings.profile is Profile.LOWVRAM
    assert rig.session.settings.cap_bytes == 2 * GIB
    assert (rig.session.settings.badges, rig.session.settings.infotext) == (False, False)
    rig.session.set_profile(Profile.MEDVRAM)
    rig.session.set_cap(3 * GIB, None)
    assert (options.data[PROFILE], options.data[CAP]) == ("medvram", 3.0)
    page.remove()
    rig.session.set_profile(Profile.AUTO)
    assert (options.data, options.data_labels) == ({}, {}), "nothing of ours is left, and nothing comes back"


def test_a_change_that_cannot_be_made_is_taken_back(rig, options):
    SettingsPage(rig.session).add()
    with rig.session.foreign_job(ImageRequest()):
        options.set(PROFILE, "lowvram")
    assert options.data[PROFILE] == "auto"
    assert rig.session.settings.profile is Profile.AUTO


def test_reload_ui_does_not_listen_twice(rig, options):
    page = SettingsPage(rig.session)
    page.add()
    page.add()
    rig.session.set_cap(GIB, None)
    assert options.data[CAP] == 1
    page.remove()
    rig.session.set_cap(2 * GIB, None)
    assert options.data == {}
