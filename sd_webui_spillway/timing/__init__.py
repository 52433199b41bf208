"""What every image cost, and the log that keeps it."""

from .image_log import ImageLog, Median
from .image_record import ImageRecord, Outcome
from .log_rows import LogFilter
from .stopwatch import Stopwatch
from .summary import badge_text, job_sentence, table_rows

__all__ = [
    "ImageLog", "ImageRecord", "LogFilter", "Median", "Outcome",
    "Stopwatch",
    "badge_text", "job_sentence", "table_rows",
]
