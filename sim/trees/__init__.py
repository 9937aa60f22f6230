"""What a draft tree is worth before anything is simulated: numbers, text and pictures."""
