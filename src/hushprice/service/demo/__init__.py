"""The demo shop: example products and simulated customers over real HTTP."""
