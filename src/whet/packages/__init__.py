"""Task packages and skill bundles: fetched, unpacked safely, and laid out without what an agent must not see."""
