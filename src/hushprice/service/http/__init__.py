"""The HTTP API: endpoints, request bodies, responses, keys, limits and the server processes."""
