"""Adds the one package that the WebUI may lack, nvidia-ml-py; touches nothing that the WebUI pins.

The WebUI runs this at start unless it was told --skip-install.
"""

import launch

if not launch.is_installed("pynvml"):
    try:
        launch.run_pip("install nvidia-ml-py", "nvidia-ml-py for Spillway")
    except RuntimeError:
        print(  # noqa: T201 - what the WebUI's console shows while it starts
            "Spillway could not install nvidia-ml-py (no network?). It works without; what other programs use of the "
            "card's memory is then unknown."
        )
