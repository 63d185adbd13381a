"""What apps of Java and Kotlin call: classes, and their native half."""
