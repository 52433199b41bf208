"""Placing one loaded model: for good by the user's choice, and for one job by what that job needs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from ..errors import UnavailableError, first_line
from ..host_port import ImageRequest, Prediction
from ..placement.component import Component, ComponentKind
from ..placement.placed_model import PlacedModel
from ..placement.profile import Profile
from ..planning.footprint import Footprint
from ..planning.planner import Plan, plan, predictions, spilled_by_driver
from ..recovery.guard import Guard, LadderExhaustedError
from ..recovery.out_of_memory import is_out_of_memory
from ..units import format_bytes
from .footprint_meter import FootprintMeter, rows_per_call


@dataclass(frozen=True)
class JobPlan:
    """How a job is to be placed, decided before it begins."""

    profile: Profile
    """The one that was asked for, or ``auto``'s choice."""
    tiled: bool
    """The VAE runs in strips from the start."""
    estimated_dedicated_bytes: int | None
    """``None`` is unknown: a notice says why."""
    notices: tuple[str, ...]
    footprint: Footprint

    def with_tiles(self) -> JobPlan:
        """The same with the VAE in strips."""
        return replace(self, tiled=True)


class Placer:
    """One model's placements, each tried so that whatever fails leaves a sound one behind. For one thread at a time."""

    def __init__(
        self,
        placed: PlacedModel,
        guard: Guard,
        meter: FootprintMeter,
        report: Callable[[str], None],
        reserved_bytes: Callable[[], int] = lambda: 0,
    ) -> None:
        """
        Args:
            report: told in words what was done beside what was asked.
            reserved_bytes: of the card, what plans are to leave free.
        """
        self._placed = placed
        self._card = placed.card
        self._guard = guard
        self._meter = meter
        self._report = report
        self._reserved_bytes = reserved_bytes

    def free_bytes(self) -> int:
        """What would be free on the card, beside what is reserved, with none of this model's weights there."""
        return max(0, self._card.free_bytes() + self._placed.resident_bytes() - self._reserved_bytes())

    def predict(self, request: ImageRequest) -> Mapping[Profile, Prediction]:
        """What each profile would need."""
        footprint, free = self._footprint(request), self.free_bytes()
        found = dict(predictions(footprint, free))
        if self._placed.spills_by_driver():
            found[Profile.SPILL] = spilled_by_driver(footprint, free)
        return found

    def choose(self, request: ImageRequest) -> Plan:
        """What ``auto`` would take now."""
        footprint = self._footprint(request)
        chosen = plan(footprint, self.free_bytes())
        if footprint.unknown_because is None:
            return chosen
        return replace(
            chosen, peak_bytes=None, reason=f"{chosen.reason} That is a guess, because {footprint.unknown_because}."
        )

    def _footprint(self, request: ImageRequest) -> Footprint:
        """``spill`` is in it where it is ours: what the driver moves, nobody can plan."""
        footprint = self._meter.footprint(request)
        return footprint.without(Profile.SPILL) if self._placed.spills_by_driver() else footprint

    def switch(self, profile: Profile) -> None:
        """Place the model so for good.

        Raises:
            UnavailableError: it does not fit or cannot be had; the placement before is back in force.
        """
        before = self._placed.profile
        self._placed.set_weights_budget(None)  # the last job's had that job's room
        failure = self.try_place(profile)
        if failure is None:
            return
        self._card.release_cached()
        if before is not None:
            self._placed.switch(before)
            self._placed.repair()  # It may never have been undone whole.
        raise UnavailableError(
            f"The profile “{profile}” does not fit in {format_bytes(self._card.limit_bytes)}; "
            f"{before or 'no profile'} stays in force.",
            detail=failure,
        )

    def try_place(self, profile: Profile) -> str | None:
        """Place the model so; why it did not fit, or ``None`` where it did."""
        try:
            self._placed.switch(profile)
        except Exception as error:
            if not is_out_of_memory(error):
                raise
            return first_line(error)
        return None

    def plan_job(self, request: ImageRequest, profile: Profile) -> JobPlan:
        """Decide how to place the model for this request."""
        footprint, free = self._footprint(request), self.free_bytes()
        tiled, notices = False, []
        estimate: int | None
        if profile is Profile.AUTO:
            chosen = self.choose(request)
            notices.append(f"auto chose {chosen.reason}")
            profile, tiled, estimate = chosen.profile, chosen.tiled, chosen.peak_bytes
        else:
            estimate = footprint.peak_bytes(profile if footprint.offers(profile) else Profile.DEDICATED)
            if footprint.unknown_because is not None:
                notices.append(f"what this job needs is a guess, because {footprint.unknown_because}")
        ours = profile in (Profile.STREAM, Profile.SPILL) and footprint.offers(profile)
        if profile is Profile.SPILL and ours:
            tiled = footprint.strips_beside_spilled(free)
        if ours:
            estimate = footprint.peak_bytes_within(free, profile, tiled=tiled)
        known = estimate if footprint.unknown_because is None else None
        return JobPlan(profile, tiled, known, tuple(notices), footprint)

    def begin_job(self, job: JobPlan, request: ImageRequest) -> Profile:
        """Place the model as planned, or as the next smaller profile where its weights alone do not fit, and tell the
        guard what would run out, so that no call has to find out by failing. Returns the profile in force.

        Raises:
            LadderExhaustedError: not even the largest layer fits.
        """
        footprint = job.footprint
        self._placed.set_weights_budget(footprint.weights_budget(self.free_bytes(), job.profile))
        profile = self.place_or_smaller(job.profile)
        components = {component.name: component for component in self._placed.components}
        for component in components.values():
            if job.tiled:
                for call in component.tileable:
                    self._guard.plan_tiled(component, call)
            if component.kind is ComponentKind.UNET:
                self._plan_rows(footprint, component, request, profile)
        free = self.free_bytes()
        budget = footprint.weights_budget(free) or 0
        for need in footprint.calls:
            if footprint.overhead.needed_bytes(budget, need.activations(tiled=job.tiled)) > free:
                self._placed.plan_alone(components[need.component], need.call)
        return profile

    def _plan_rows(self, footprint: Footprint, unet: Component, request: ImageRequest, profile: Profile) -> None:
        """A batch too large even for the smallest placement is split before it runs out."""
        free, rows = self.free_bytes(), rows_per_call(unet, request)
        need = next((need for need in footprint.calls if need.component == unet.name), None)
        if need is None or rows < 2 or profile is Profile.DEDICATED or not footprint.offers(profile):
            return
        weights = need.weights_bytes.get(profile, need.whole_bytes)
        overhead = footprint.overhead
        while rows > 1 and overhead.needed_bytes(weights, need.activation_bytes * rows // rows_per_call(
            unet, request
        )) > free:
            rows = (rows + 1) // 2
        if rows < rows_per_call(unet, request):
            parts = -(-rows_per_call(unet, request) // rows)
            words = f"the batch does not fit at once as {profile}: each step runs in {parts} parts"
            self._guard.plan_rows(unet, next(iter(unet.calls)), rows, words)

    def place_or_smaller(self, profile: Profile) -> Profile:
        """Place the model so, or as the next smaller profile where its weights alone do not fit; returns which.

        Raises:
            LadderExhaustedError: not even the largest layer fits.
        """
        while True:
            failure = self.try_place(profile)
            if failure is None:
                return profile
            self._card.release_cached()
            smaller = self._placed.smaller(profile)
            if smaller is None:
                raise LadderExhaustedError(
                    f"The model's largest layer does not fit on the card: {format_bytes(self._card.free_bytes())} of "
                    f"{format_bytes(self._card.limit_bytes)} are free.", detail=failure,
                )
            limit = format_bytes(self._card.limit_bytes)
            self._report(f"the model does not fit in {limit} as {profile}: went from {profile} to {smaller}")
            profile = smaller
