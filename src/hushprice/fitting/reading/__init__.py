"""Reading a log: files, data frames and their encoding as contexts."""
