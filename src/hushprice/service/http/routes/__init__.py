"""The endpoints, grouped by who calls them."""
