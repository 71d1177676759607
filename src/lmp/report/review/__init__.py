"""Self-review of any markdown: pointers, placeholders, tables, numbers and diagrams, held against what they name."""
