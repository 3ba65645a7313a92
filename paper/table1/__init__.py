"""Table 1: the order of the algorithms."""
