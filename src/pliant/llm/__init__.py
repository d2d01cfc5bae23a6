"""Language models: tokenisers, chat templates, sampling, and getting model files."""
