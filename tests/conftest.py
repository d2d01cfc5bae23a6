"""Makes the modules beside this file importable from every folder of tests."""
