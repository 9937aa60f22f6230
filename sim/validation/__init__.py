"""Published measurements turned into scenarios, predicted, and set beside what was measured."""
