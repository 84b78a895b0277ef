"""INT8 and FP16: scales, calibration, Q/DQ layers, and a network in the arithmetic of the DLA."""
