"""What commands print: text and JSON, and results of `dscore bench` as tables and pictures."""
