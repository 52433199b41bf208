"""The programs this engine can sit in. Each host has a module of its own; nothing is imported here."""
