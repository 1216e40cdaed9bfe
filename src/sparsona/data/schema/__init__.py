"""What an owner's columns mean: declared by the owner, understood row by row, agreed on by all."""
