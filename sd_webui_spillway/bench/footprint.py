"""How well footprints are predicted: ``python -m sd_webui_spillway.bench.footprint``. Needs a CUDA card.

For each call of a real-size model: the predicted bytes, the bytes of the tensors really alive, the peak that torch
allocated (cuDNN's workspaces included), and the smallest limit under
which the call succeeds (by bisection), which includes what cuDNN and fragmentation take on top. With ``--simulated``
instead the peak that a simulated card counts for whole images, beside CUDA's.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal

import torch

from ..host_port import ImageRequest
from ..hosts.diffusers import DiffusersHost
from ..hosts.diffusers_model import PipelineShapes, components_of
from ..hosts.footprint_meter import FootprintMeter
from ..models import LoadedModel
from ..models.maker import build_pipeline
from ..placement.card import CudaCard
from ..placement.component import Component
from ..placement.profile import Profile
from ..placement.simulated import SimulatedCard
from ..placement.tensor_tree import map_tensors
from ..planning.activation_meter import LiveBytesMode
from ..planning.footprint import AllocatorOverhead
from ..recovery.out_of_memory import is_out_of_memory
from ..units import GIB, MIB
from .profiles import SilentObserver
from .results import ResultFile

CASES: tuple[tuple[Literal["sd1", "sdxl"], tuple[tuple[int, int], ...]], ...] = (
    ("sd1", ((512, 1), (512, 4), (768, 1))),
    ("sdxl", ((1024, 1), (1024, 4))),
)
"""Model, and (width and height in pixels, batch)."""
SIMULATED_PROFILES = (Profile.DEDICATED, Profile.MEDVRAM, Profile.LOWVRAM, Profile.SEQUENTIAL)


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure every case and write it."""
    parser = argparse.ArgumentParser(prog="python -m sd_webui_spillway.bench.footprint", description=__doc__)
    parser.add_argument("--json", type=Path, required=True)
    parser.add_argument("--simulated", action="store_true", help="instead: SD 1.5 at 512², simulated and on CUDA")
    options = parser.parse_args(arguments)
    results = ResultFile(options.json)
    with tempfile.TemporaryDirectory() as folder:
        for kind, cases in CASES if not options.simulated else ():
            pipeline = build_pipeline(kind, "real", 0, torch.float16, Path(folder))
            for size, batch in cases:
                _calls(results, pipeline, kind, size, batch)
        if options.simulated:
            _against_simulated(results, Path(folder))
    return 0


def _calls(results: ResultFile, pipeline: Any, kind: str, size: int, batch: int) -> None:
    components = components_of(pipeline)
    shapes = PipelineShapes(pipeline)
    meter = FootprintMeter(components, shapes, AllocatorOverhead())
    request = ImageRequest(width=size, height=size, batch_size=batch, init_image=Path(__file__))
    for need in meter.footprint(request).calls:
        component = next(c for c in components if c.name == need.component)
        if batch > 1 and component.name != "unet":
            continue
        component.module.to("cuda")
        run = _runner(component, need.call, shapes, request)
        allocated = _allocated(run)
        counted = _counted(run, component)
        weights = sum(p.nbytes for p in component.module.parameters())
        smallest = _smallest_limit(run, weights + need.activation_bytes // 2, weights + 8 * need.activation_bytes + GIB)
        component.module.to("cpu")
        torch.cuda.empty_cache()
        results.add(
            case="call",
            kind=kind,
            size=size,
            batch=batch,
            component=component.name,
            call=need.call,
            weights_bytes=weights,
            predicted_activation_bytes=need.activation_bytes,
            counted_activation_bytes=counted,
            allocated_activation_bytes=allocated,
            smallest_limit_activation_bytes=smallest - weights,
        )
        sys.stderr.write(f"{kind} {size} b{batch} {component.name}.{need.call}: {results.cells[-1]}\n")


def _runner(component: Component, call: str, shapes: PipelineShapes, request: ImageRequest) -> Callable[[], None]:
    module: Any = component.module

    def run() -> None:
        args, kwargs = _on_card(shapes.inputs(component, call, request), module.dtype)
        with torch.no_grad():
            getattr(module, call)(*args, **kwargs)

    return run


def _on_card(tree: Any, dtype: torch.dtype) -> Any:
    return map_tensors(tree, lambda tensor: tensor.to("cuda", dtype if tensor.is_floating_point() else tensor.dtype))


def _allocated(run: Callable[[], None]) -> int:
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    run()
    torch.cuda.synchronize()
    return torch.cuda.max_memory_allocated() - before


def _counted(run: Callable[[], None], component: Component) -> int:
    """Bytes of the tensors alive at once on CUDA, counted as a simulated card counts them: no workspaces."""
    counting = LiveBytesMode(chain(component.module.parameters(), component.module.buffers()))
    with counting:
        run()
    return counting.peak_bytes


def _smallest_limit(run: Callable[[], None], low: int, high: int) -> int:
    """The smallest per-process limit, within 16 MiB, under which ``run`` succeeds."""
    total = torch.cuda.get_device_properties(0).total_memory
    while high - low > 16 * MIB:
        middle = (low + high) // 2
        torch.cuda.empty_cache()
        torch.cuda.set_per_process_memory_fraction(middle / total)
        if _succeeds(run):
            high = middle
        else:
            low = middle
    torch.cuda.set_per_process_memory_fraction(1.0)
    return high


def _succeeds(run: Callable[[], None]) -> bool:
    try:
        run()
        torch.cuda.synchronize()
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        return False
    return True


def _against_simulated(results: ResultFile, folder: Path) -> None:
    """Whole images of SD 1.5 in fp32 on both, so that both run the same arithmetic. cuDNN's workspaces, which
    a simulated card cannot know, are in CUDA's peak."""
    request = ImageRequest(prompt="a lighthouse", width=512, height=512, steps=1)
    for profile in SIMULATED_PROFILES:
        peaks = {}
        for name, card in (("cuda", CudaCard()), ("simulated", SimulatedCard(64 * GIB))):
            pipeline = build_pipeline("sd1", "real", 0, torch.float32, folder)
            host = DiffusersHost(LoadedModel(pipeline, "sd1 real", "sd1", (512, 512)), card)
            result = host.generate(request, profile, "bench", folder, SilentObserver())
            peaks[f"{name}_peak_bytes"] = result.images[0].record.peak_dedicated_bytes
            host.close()
        results.add(case="simulated", profile=profile.value, size=512, **peaks)
        sys.stderr.write(f"{profile}: {peaks}\n")


if __name__ == "__main__":
    sys.exit(main())
