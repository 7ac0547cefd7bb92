"""Long runs: the paper's table, its scaling fits, and speeds. ``make bench`` runs them all."""
