"""What crosses the wire between a device and the service: JSON Schemas, and test vectors with their makers."""
