"""Values and words: what everything above is said in; imports nothing above."""
