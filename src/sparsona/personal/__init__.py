"""What a client uses: made of the method's model in one room, for every method alike."""
