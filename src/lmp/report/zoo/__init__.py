"""The summary of a zoo for people: `markdown`, and one HTML `page`, which is filtered and sorted in a browser."""
