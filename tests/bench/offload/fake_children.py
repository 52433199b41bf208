"""Children that need no torch: they answer as a peer's process would, or fail as it might."""

from __future__ import annotations

import sys
from typing import Any

from sd_webui_spillway.bench.offload.process import Child

_SCRIPT = """
import json, sys, time
behaviour, raw = sys.argv[1], json.loads(sys.argv[2])
def say(**answer):
    print(json.dumps(answer), flush=True)
if behaviour == "cannot":
    say(ready=False, why="it lacks a limb")
else:
    say(ready=True, why=None)
for line in sys.stdin:
    order = json.loads(line)
    if order["do"] == "end":
        break
    if order["do"] == "load":
        say(load_seconds=0.1)
    elif behaviour == "dies":
        sys.exit("RuntimeError: the link is down")
    elif behaviour == "hangs":
        time.sleep(600)
    elif behaviour == "mumbles":
        print("Segmentation", flush=True)
    elif behaviour == "fails":
        say(why="out of memory")
    elif order["do"] == "switch":
        say(switches=[{"to_stream_added_seconds": 1.0, "to_stream_seconds": 0.5, "to_dedicated_seconds": 0.25,
                       "pinned_bytes": 5000000000}] * 2)
    else:
        say(**raw)
"""

RAW: dict[str, Any] = {
    "weights_bytes": 5_000_000_000,
    "activation_bytes": 400_000_000,
    "link_bytes_per_second": 5e10,
    "dedicated_beside": True,
    "place_seconds": 1.0,
    "warm_up_seconds": [0.2] * 4,
    "step_seconds": [0.09, 0.1, 0.11, 0.1, 0.1],
    "step_cpu_seconds": 0.06,
    "dedicated_seconds": [0.06, 0.07, 0.06, 0.06],
    "dedicated_cpu_seconds": 0.055,
    "peak_dedicated_bytes": 1_000_000_000,
    "pinned_bytes": 5_000_000_000,
    "cap_bytes": 6_000_000_000,
    "predicted_step_seconds": 0.098,
    "equal_to_dedicated": True,
}


def child(behaviour: str = "answers", **raw: Any) -> Child:
    """A process that behaves so; its figures are :data:`RAW` with these instead."""
    import json

    return Child([sys.executable, "-c", _SCRIPT, behaviour, json.dumps({**RAW, **raw})])
