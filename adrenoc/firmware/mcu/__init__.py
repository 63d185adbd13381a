"""Int8 networks as C for microcontrollers: from the model's integers to a folder for firmware."""
