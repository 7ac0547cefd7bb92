"""JSON bodies: the types of requests and answers, and a strict reader of requests."""
