"""Wing of the results: read, scored and contrasted. Imports no other wing."""
