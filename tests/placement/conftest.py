"""The real card, set so that two runs of one thing give the same bytes."""

from __future__ import annotations

import gc

import pytest
import torch

from sd_webui_spillway.placement.card import CudaCard


@pytest.fixture
def card():
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA GPU that torch can use")
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    gc.collect()
    torch.cuda.empty_cache()
    card = CudaCard(link=True)
    yield card
    card.close()
