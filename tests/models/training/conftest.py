"""One classifier, trained for seconds on few words, for all tests that need one that really sees."""

from __future__ import annotations

import pytest
import torch

from sd_webui_spillway.models.training.classifier_pictures import Vocabulary
from sd_webui_spillway.models.training.classifier_training import ClassifierPlan, train_classifier

FEW = Vocabulary(shapes=("circle", "cross"), colours=("red", "green", "blue"))
QUICK = ClassifierPlan(
    steps=480, batch=24, pool=900, side_pixels=64, width=8, learning_rate=1e-2, checked=200, vocabulary=FEW
)


@pytest.fixture(scope="session")
def quick():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield train_classifier("cpu", 0, QUICK)
    torch.set_num_threads(before)
