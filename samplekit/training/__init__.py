"""What needs torch: log probabilities and the reference of every loss."""
