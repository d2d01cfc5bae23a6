"""Foundation of autotuning: measures compiled programs in separate processes."""
