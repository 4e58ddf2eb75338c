echo legacy
