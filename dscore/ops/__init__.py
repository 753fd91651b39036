"""What is computed: one module for each operation, one line in the table here."""
