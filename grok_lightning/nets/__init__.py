"""The networks, pure torch; each names its matrices (for spectra) and its parameter blocks."""
