"""What results look like outside of lmp."""
