"""What a product learns, as a fold over its log. No SQL, no HTTP, no clock."""
