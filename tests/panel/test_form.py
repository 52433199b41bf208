"""From fields to a request, and from errors to markup."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sd_webui_spillway.errors import BadInputError, UnavailableError
from sd_webui_spillway.host_port import ImageRequest
from sd_webui_spillway.panel.form import FIELDS, request_from
from sd_webui_spillway.panel.messages import error_markup, notice_markup

GOOD = {
    "prompt": "a house", "negative_prompt": "", "width": 64.0, "height": 64, "steps": 4, "sampler": "euler",
    "guidance_scale": 7.5, "seed": 3, "batch_size": 1, "batch_count": 2,
}


def test_fields_become_a_request():
    request = request_from(GOOD, random_seed=99)
    assert request == ImageRequest(
        prompt="a house", width=64, height=64, steps=4, sampler="euler", guidance_scale=7.5, seed=3, batch_count=2
    )
    assert request_from({**GOOD, "seed": -1}, random_seed=99).seed == 99


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("width", None, "The width must be a number"),
        ("width", 60, "multiple of 8"),
        ("height", 99999, "height must be from"),
        ("steps", 2.5, "must be a whole number, not 2.5"),
        ("steps", float("nan"), "finite"),
        ("guidance_scale", "", "The guidance scale must be a number"),
        ("seed", -2, "seed must be from 0"),
        ("batch_size", 0, "batch size must be from 1"),
    ],
)
def test_each_bad_field_is_named_in_one_sentence(field, value, words):
    with pytest.raises(BadInputError, match=words):
        request_from({**GOOD, field: value}, random_seed=0)


@given(st.dictionaries(st.sampled_from(FIELDS), st.none() | st.text() | st.floats() | st.integers()))
def test_whatever_stands_in_the_fields_is_a_request_or_a_sentence(values):
    try:
        request = request_from({**GOOD, **values}, random_seed=1)
    except BadInputError as refused:
        sentence = str(refused)
    else:
        assert request == request.validated()
        return
    assert sentence.endswith(".")


def test_messages_never_carry_markup_of_others():
    error = UnavailableError("No <script>alert(1)</script>.", detail="<b>x</b>")
    for markup in (error_markup(error), notice_markup(["<img src=x onerror=alert(1)>"])):
        assert "<script" not in markup
        assert "<b>" not in markup
        assert "<img" not in markup
    assert notice_markup([]) == ""
