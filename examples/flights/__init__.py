"""The main job: a year of flights through a topic and back. See ``__main__``."""
