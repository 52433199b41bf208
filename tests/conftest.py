"""What all tests share."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

# A busy machine may take its time: how long an example takes is not what these tests are about.
settings.register_profile("spillway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("spillway")
