"""``python -m sd_webui_spillway``: the same as ``spillway``."""

import sys

from .cli import main

sys.exit(main())
