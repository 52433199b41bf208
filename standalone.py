"""Set up everything and run it: ``python standalone.py demo``, ``serve``, ``generate …``, or ``test``.

Needs only Python 3.10 or newer. The first run makes an environment beside this file and installs pinned packages into
it; later runs start at once.
"""

import sys
from pathlib import Path

if sys.version_info < (3, 10):  # noqa: UP036 - an older Python must get this sentence, not a traceback
    sys.exit("Python 3.10 or newer is needed; this is {}.{}.".format(*sys.version_info[:2]))

from sd_webui_spillway.bootstrap import main

if __name__ == "__main__":
    sys.exit(main(Path(__file__).resolve().parent, sys.argv[1:]))
