"""The implementation report: the eleven sections of the users' template, each made from a model's facts."""
