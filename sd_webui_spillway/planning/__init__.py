"""What a request needs, and which profile serves it best."""
