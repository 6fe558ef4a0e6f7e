"""The version of the library that this package was written for."""
VERSION = "0.1.0"
