"""Training the embedded model from scratch on drawn pictures, and measuring what came of it."""
