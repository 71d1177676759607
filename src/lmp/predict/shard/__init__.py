"""One rank's part of a call: tensor, expert and pipeline parallelism by data flow, with the collectives between."""
