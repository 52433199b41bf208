"""The words of ``spillway model``: making, converting, training and measuring models."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from . import model_commands, model_files, model_training


def add_model_commands(words: Any) -> None:
    """Adds ``model`` and its actions to the command line's words, argparse's subparsers."""
    model = words.add_parser("model", help="convert, train, measure a model; make one with random weights")
    actions = model.add_subparsers(required=True, metavar="ACTION")
    _add_make(actions.add_parser("make", help="write a checkpoint with random weights in the original layout"))
    _add_convert(
        actions.add_parser(
            "convert",
            help="write a diffusers folder as one file in the original layout, with the .yaml for AUTOMATIC1111",
        )
    )
    _add_train(actions.add_parser("train", help="train the embedded model from scratch on drawn pictures"))
    _add_measure(actions.add_parser("measure", help="count how often pictures are as their captions say"))


def _add_make(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("path", type=Path, help="a .safetensors or .ckpt file to write")
    parser.add_argument("--kind", choices=("sd1", "sd2", "sdxl"), default="sd1")
    parser.add_argument("--size", choices=("tiny", "real"), default="tiny")
    parser.add_argument("--precision", choices=("fp32", "fp16"), default="fp16")
    parser.add_argument("--seed", type=int, default=0)
    parser.set_defaults(run=model_files.make)


def _add_convert(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("source", type=Path, help="a model folder in diffusers' layout")
    parser.add_argument("target", type=Path, help="a .safetensors file to write")
    parser.add_argument("--precision", choices=("fp32", "fp16", "bf16"), help="default: that of the folder's weights")
    parser.add_argument("--force", action="store_true", help="replace files that are there already")
    parser.set_defaults(run=model_files.convert)


def _add_train(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("folder", type=Path, help="where the run works; the same command goes on with what is there")
    parser.add_argument("--recipe", choices=("full", "tiny"), default="full", help="tiny: every step, nothing useful")
    parser.add_argument("--minutes", type=float, help="pause after so long; say the same again to go on")
    parser.add_argument("--device", default="auto", help="cuda or cpu (default: auto, the GPU where there is one)")
    parser.set_defaults(run=model_training.train)


def _add_measure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", type=Path, help="a diffusers folder or a checkpoint (default: the embedded one)")
    parser.add_argument("--captions", type=int, default=200, help="how many, none of them trained on")
    parser.add_argument("--seed", type=int, default=0, help="of the choice of captions")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--guidance-scale", type=float, default=7.0)
    parser.add_argument("--sampler", default="default")
    parser.add_argument("--size", type=int, help="width and height in pixels (default: the model's own)")
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--precision", choices=("fp16", "bf16", "fp32"), default="fp32")
    parser.add_argument("--device", default="auto", help="cuda or cpu (default: auto, the GPU where there is one)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures and every failure to this file")
    parser.add_argument("--sheet", type=Path, metavar="FOLDER", help="write right.png and wrong.png here, to look at")
    parser.set_defaults(run=model_commands.measure_model)
