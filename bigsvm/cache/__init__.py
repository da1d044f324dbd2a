"""The kernel row cache: a memory tier over whatever computes or stores rows below it."""
