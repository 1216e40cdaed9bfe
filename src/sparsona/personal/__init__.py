"""The model that a client uses: made from the method's model, in the same way for every method."""
