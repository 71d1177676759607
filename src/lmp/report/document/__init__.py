"""What reports are made of: `parts` (values), `amounts` (numbers and how to work them out again), `markdown` (text)."""
