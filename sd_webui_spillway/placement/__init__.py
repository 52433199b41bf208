"""Where the weights live. Only names that need no torch are exported here: a panel may import them on its own."""

from .profile import PROFILES, Profile, ProfileInfo

__all__ = ["PROFILES", "Profile", "ProfileInfo"]
