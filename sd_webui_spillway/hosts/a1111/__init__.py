"""The engine inside AUTOMATIC1111. What is the host's, ``modules.*``, is imported inside functions: tests and tools
without a host read this package too."""
