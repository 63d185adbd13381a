"""Files and folders: what is read, and what is written all or nothing."""
