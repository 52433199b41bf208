"""Command-line flags that the WebUI takes for this extension."""


from argparse import ArgumentParser


def preload(parser: ArgumentParser) -> None:
    """Called by the WebUI before it reads its command line."""
    parser.add_argument(
        "--spillway-profile", default=None,
        help="Spillway: how to place the model's weights at start: auto, dedicated, medvram, lowvram, sequential, "
        "stream or spill (by default what was chosen last in the Spillway tab)",
    )
    parser.add_argument(
        "--spillway-shared-cap", default=None,
        help="Spillway: the most system memory the card may borrow, for example 6GiB or 30%%",
    )
    parser.add_argument(
        "--spillway-dedicated-limit", default=None,
        help="Spillway: use only so much of the card, for example 4GiB; without a GPU, count on a simulated card",
    )
