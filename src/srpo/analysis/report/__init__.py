"""Wing of the report: claims, sentences and the page. Imports the other wings."""
