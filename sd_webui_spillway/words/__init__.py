"""The sentences that this program makes, in the reader's language."""

from .translate import LANGUAGES, language_of, translate

__all__ = ["LANGUAGES", "language_of", "translate"]
