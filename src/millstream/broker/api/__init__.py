"""From a request's bytes to its handler and back: versions, limits, decoding, long requests in slices."""
