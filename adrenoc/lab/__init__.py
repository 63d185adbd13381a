"""What is learnt from devices: calibration, proof, tuning, many devices at once."""
