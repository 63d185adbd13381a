"""The ground: errors, decisions, files, words, this computer, and what every wing may use."""
