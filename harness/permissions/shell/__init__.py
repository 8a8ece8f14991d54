"""What a shell command would run and touch, by the shell's own grammar."""
