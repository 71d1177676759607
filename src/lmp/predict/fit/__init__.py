"""The fit of the calibration: tables of measured rows in, parameters, trees and errors out. Needs lmp[calibrate]."""
