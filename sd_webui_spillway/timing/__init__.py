"""What every image cost, and the log that keeps it."""

from .image_log import ImageLog, Median
from .image_record import ImageRecord, Outcome
from .log_rows import LogFilter

__all__ = ["ImageLog", "ImageRecord", "LogFilter", "Median", "Outcome"]
