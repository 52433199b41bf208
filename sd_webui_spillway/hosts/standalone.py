"""Putting a session together where there is no WebUI: the card, the model, the folders, the monitor and the log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import platformdirs
import torch

from ..errors import BadInputError, StorageError, first_line
from ..host_port import ImageRequest
from ..memory import MemoryReader, Monitor, machine_providers
from ..memory.ram import RamProvider
from ..memory.shared_ledger import SharedLedger
from ..models import LoadedModel, LoraChoice, load_model
from ..placement.card import Card, CudaCard
from ..placement.profile import Profile
from ..placement.simulated import SimulatedCard
from ..planning.footprint import CUDA_OVERHEAD, AllocatorOverhead
from ..session import Session
from ..settings import SettingsFile
from ..timing import ImageLog
from .card_memory import CardMemory
from .diffusers import DiffusersHost
from .diffusers_model import PipelineShapes, components_of
from .footprint_meter import FootprintMeter

APP_NAME = "sd-webui-spillway"
PRECISIONS = {"fp32": torch.float32, "fp16": torch.float16, "bf16": torch.bfloat16}


@dataclass(frozen=True)
class StandaloneOptions:
    """What a person may choose before anything is loaded."""

    model: Path | None = None
    """A diffusers folder or an original checkpoint; ``None`` is the embedded model."""
    loras: tuple[LoraChoice, ...] = ()
    """Added to the model when it is loaded."""
    precision: str | None = None
    """One of :data:`PRECISIONS`; by default fp16 on a GPU and fp32 on a CPU."""
    dedicated_limit_bytes: int | None = None
    simulated_card_bytes: int | None = None
    """Count on a simulated card of this size even where there is a GPU."""
    data_folder: Path | None = None
    output_folder: Path | None = None


def data_folder(options: StandaloneOptions) -> Path:
    """The user's data folder, made if missing.

    Raises:
        StorageError: it cannot be made.
    """
    folder = options.data_folder or Path(platformdirs.user_data_dir(APP_NAME, appauthor=False))
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(
            f"The data folder {folder} cannot be made: {error.strerror or first_line(error)}; "
            "choose another with --data-folder."
        ) from error
    return folder


def cache_folder() -> Path:
    """Where models that were made here are kept; they can be made again."""
    return Path(platformdirs.user_cache_dir(APP_NAME, appauthor=False))


def open_log(options: StandaloneOptions) -> ImageLog:
    """The image log in the data folder."""
    return ImageLog.open(data_folder(options) / "images.sqlite3")


def open_card(options: StandaloneOptions) -> Card:
    """The GPU, limited if so asked; a simulated card where there is none or one is asked for."""
    if not on_gpu(options):
        return SimulatedCard(options.simulated_card_bytes or options.dedicated_limit_bytes or _ram_bytes())
    return CudaCard(options.dedicated_limit_bytes)


def open_small_card(options: StandaloneOptions, model: LoadedModel, request: ImageRequest, share: float) -> Card:
    """A card, or a limit on the real one, of this share of what the request would need as ``dedicated``."""
    overhead = CUDA_OVERHEAD if on_gpu(options) else AllocatorOverhead()
    meter = FootprintMeter(components_of(model.pipeline), PipelineShapes(model.pipeline), overhead)
    size = int(meter.footprint(request).peak_bytes(Profile.DEDICATED) * share)
    return open_card(replace(options, dedicated_limit_bytes=size))


def memory_reader(card: Card | None, ledger: SharedLedger | None = None) -> MemoryReader:
    """The chain of providers for this machine, the card's own figures first."""
    ledger = ledger or SharedLedger()
    own = (CardMemory(card, ledger),) if card is not None else ()
    index = (card.device.index or 0) if card is not None else 0
    return MemoryReader((*own, *machine_providers(index, lambda: _fraction(card), lambda: ledger.pinned_bytes)))


def open_session(
    options: StandaloneOptions, card_for: Callable[[LoadedModel], Card] | None = None
) -> Session:
    """Load the model and build the session. ``card_for`` chooses the card once the model is known.

    Raises:
        SpillwayError: one sentence: what is wrong with the model, a folder or an option.
    """
    if options.precision is not None and options.precision not in PRECISIONS:
        raise BadInputError(f"There is no precision “{options.precision}”; choose one of {', '.join(PRECISIONS)}.")
    folder = data_folder(options)
    log = open_log(options)
    precision = options.precision or ("fp16" if on_gpu(options) else "fp32")
    model = load_model(options.model, cache_folder(), PRECISIONS[precision], options.loras)
    card = card_for(model) if card_for else open_card(options)
    ledger = SharedLedger()
    return Session(
        DiffusersHost(model, card, ledger),
        Monitor(memory_reader(card, ledger)),
        log,
        SettingsFile(folder / "settings.json"),
        options.output_folder or folder / "outputs",
        ledger,
    )


def on_gpu(options: StandaloneOptions) -> bool:
    """Whether a session with these options runs on a GPU."""
    return options.simulated_card_bytes is None and torch.cuda.is_available()


def _fraction(card: Card | None) -> float:
    return card.limit_bytes / card.total_bytes if card is not None else 1.0


def _ram_bytes() -> int:
    total = RamProvider().read().values["ram_total_bytes"]
    return int(total)
