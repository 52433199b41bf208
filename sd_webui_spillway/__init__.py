"""Where each byte of a diffusion model lives, what that costs, and how to survive when it does not fit."""

__version__ = "0.1.0"
