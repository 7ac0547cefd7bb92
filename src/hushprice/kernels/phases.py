"""Numbers of the phases, the ways in which a device prices. ``policies.Phase`` has their properties."""

EXPLORE, EXPLOIT, PERTURB, FIXED, GRID = 0, 1, 2, 3, 4  # from theta: hushprice.kernels.quote
INDEX, SAMPLE, SET, STAGES = 5, 6, 7, 8  # from confidence bounds: hushprice.kernels.confidence
