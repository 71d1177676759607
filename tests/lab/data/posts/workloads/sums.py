"""Sums of squares: prints how many, and their sum."""

for count in (10, 20, 40):
    print(f"{count} numbers: {sum(n * n for n in range(count))}")
