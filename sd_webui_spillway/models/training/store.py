"""The folder a training run works in: what each finished stage left, and where an unfinished one can go on."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from torch import nn

from ...errors import BadInputError, ModelFileError
from ..atomic import whole_file
from ..ldm_layout import State
from .recipe import Recipe

_RUN = "run.json"


@dataclass(frozen=True)
class Store:
    """Files of one run. The recipe it was begun with is written down, and another one is refused."""

    folder: Path

    def open_for(self, recipe: Recipe) -> None:
        """Begins a run, or goes on with one.

        Raises:
            BadInputError: the folder holds a run of another recipe.
            StorageError: it cannot be written.
        """
        ours = json.loads(json.dumps(asdict(recipe)))
        theirs = self.facts().get("recipe", ours)
        if theirs != ours:
            raise BadInputError(
                f"“{self.folder}” holds a training run of another recipe; choose another folder, or remove it."
            )
        self.note(recipe=ours)

    def facts(self) -> dict[str, Any]:
        """What has been noted so far."""
        path = self.folder / _RUN
        if not path.is_file():
            return {}
        try:
            facts: dict[str, Any] = json.loads(path.read_text("utf-8"))
        except ValueError as error:
            raise ModelFileError(f"“{path}” is damaged.", detail=repr(error)) from error
        return facts

    def note(self, **facts: Any) -> None:
        """Adds to what is noted."""
        text = json.dumps(self.facts() | facts, indent=1)
        with whole_file(self.folder / _RUN) as temporary:
            temporary.write_text(text, "utf-8")

    def state_file(self, stage: str) -> Path:
        """Where an unfinished stage keeps its state."""
        return self.folder / f"{stage}-state.pt"

    def sample_file(self, done: int) -> Path:
        """Where a sheet of samples after so many steps goes."""
        return self.folder / "samples" / f"{done:06d}.png"

    def has(self, stage: str) -> bool:
        """Whether the stage is finished."""
        return self._weights(stage).is_file()

    def keep(self, stage: str, state: State) -> None:
        """Writes what a finished stage has learnt."""
        from safetensors.torch import save_file

        with whole_file(self._weights(stage)) as temporary:
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}, str(temporary))

    def load(self, stage: str) -> State:
        """What a finished stage has learnt."""
        from safetensors.torch import load_file

        return load_file(str(self._weights(stage)))

    def load_into(self, stage: str, module: nn.Module) -> None:
        """Puts what a finished stage has learnt into its module."""
        module.load_state_dict(self.load(stage))

    def _weights(self, stage: str) -> Path:
        return self.folder / f"{stage}.safetensors"
