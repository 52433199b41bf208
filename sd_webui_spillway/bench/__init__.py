"""Measurements, and the tables made of them."""
