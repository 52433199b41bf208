"""What all tests share."""

from __future__ import annotations

import os

from hypothesis import HealthCheck, settings

# The models here are so small that more threads only wait for one another.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine may take its time: how long an example takes is not what these tests are about.
settings.register_profile("spillway", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("spillway")
