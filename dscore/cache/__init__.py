"""Cache on disk: its entries, and the folders that hold them."""
