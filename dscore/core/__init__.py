"""Values and words that everything above is written in; imports nothing above."""
