"""Dense and grouped convolutions."""
