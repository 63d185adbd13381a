"""What Android needs: NDK, linking, ELF facts, the runtime, checks of apps."""
