"""One call graph of a code base: what each function calls, as far as reading tells."""
