"""What turns an out-of-memory into a smaller retry of the one call that failed."""
