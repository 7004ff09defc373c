"""Wing of the tables: laid out and written. Imports only the results."""
