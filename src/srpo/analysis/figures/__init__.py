"""Wing of the figures: framed, drawn and captioned. Imports only the results."""
