"""What notices mistakes that give wrong or slow training, and no error."""
