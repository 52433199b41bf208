"""Sentences of ours in another language, with the facts in them kept."""

from __future__ import annotations

import pytest

from sd_webui_spillway.words import language_of, translate


@pytest.mark.parametrize(
    ("english", "chinese"),
    [
        ("nothing lost", "没有丢失"),
        ("The width must be a multiple of 8, not 100.", "宽度必须是 8 的倍数，而不是 100。"),
        (
            "The profile “stream” is unavailable, because torch is not loaded.",
            "方案“stream”不可用：torch 尚未载入。",
        ),
        (
            "UNet ran out at step 14 of 30 with 11.6 GiB of 12.0 GiB in use: went from dedicated to medvram",
            "UNet在第 14 / 30 步显存不足（12.0 GiB 中已用 11.6 GiB）：从 dedicated 换到 medvram",
        ),
        (
            "8 of 8 images in 12.31 s; 2 out-of-memory recoveries; nothing lost.",
            "8 张中完成 8 张，用时 12.31 s；2 次显存不足后恢复；没有丢失。",
        ),
        ("1.84 s · 10.9 it/s · 3.1 GiB + 0.4 shared · medvram (simulated)",
         "1.84 s · 10.9 步/秒 · 3.1 GiB + 共享 0.4 · medvram（模拟）"),
        (
            "The image with seed 6 was given up: The UNet does not fit in 4.0 GiB however small its work is made.",
            "种子为 6 的图像已放弃：无论如何缩小，UNet都放不进 4.0 GiB。",
        ),
        ("Image 3 of 8 could not be made: no reason was given", "第 3 / 8 张无法生成：未说明原因"),
        ("D:\\pictures (old) cannot be written (Access {denied})", "D:\\pictures (old) 无法写入（Access {denied}）"),
    ],
)
def test_sentences_are_said_with_their_facts(english, chinese):
    assert translate(english, "zh") == chinese


def test_what_no_table_knows_stays_as_it_is():
    assert translate("RuntimeError: quite another thing", "zh") == "RuntimeError: quite another thing"
    assert translate("nothing lost", "en") == "nothing lost"
    assert translate("", "zh") == ""


@pytest.mark.parametrize(
    ("asked", "language"),
    [("zh", "zh"), ("zh-CN,zh;q=0.9,en;q=0.8", "zh"), ("en-US,en;q=0.9,zh;q=0.8", "en"), ("de", "en"), (None, "en"),
     ("zh_CN", "zh"), ("*", "en"), ("", "en")],
)
def test_the_first_language_asked_for_decides(asked, language):
    assert language_of(asked) == language
