"""The clients that read each other's records, behind one small interface each."""
