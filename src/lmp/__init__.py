"""lmp: what every source line of a forward() costs."""
