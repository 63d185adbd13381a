"""What a user sends to those who make adrenoc: figures of a device, and nothing of the user's."""
