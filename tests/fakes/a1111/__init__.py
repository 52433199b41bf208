"""What stands in for AUTOMATIC1111 and for the engine under it."""
