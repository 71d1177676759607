"""The repository report: the users' template for code bases, made from what reconnaissance finds."""
