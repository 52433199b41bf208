"""AUTOMATIC1111's webui. Its ``modules`` are imported inside functions only: tests import these files without it."""
