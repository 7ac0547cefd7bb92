"""What the dashboard shows: summary, demand curve and confidence bands."""
