"""Making an environment to run in. Standard library only: it runs before anything is installed."""

from .main import main

__all__ = ["main"]
