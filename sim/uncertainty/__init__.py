"""What is not known: parameters with distributions, and what they do to the answer."""
