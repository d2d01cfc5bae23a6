"""The families of operators, one file each. This package imports none of them: `graph/opset.py` finds an operator by name."""
