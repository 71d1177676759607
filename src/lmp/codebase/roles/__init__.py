"""What plays which part in a code base: by what its code does; words of the field rank what does the same."""
