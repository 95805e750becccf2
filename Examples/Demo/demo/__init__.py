"""The demonstration: prepares the inputs, runs the three programs, prints the table."""
