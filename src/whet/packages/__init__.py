"""Task packages and skills from elsewhere: fetch, unpack and read them."""
