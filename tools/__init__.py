"""Tools for developers of hushprice: measurements of the structure, and the house rules of ``make lint``."""
