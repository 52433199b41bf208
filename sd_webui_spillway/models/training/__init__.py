"""Training the embedded model on drawn pictures, and measuring honestly what it then draws."""

from __future__ import annotations
