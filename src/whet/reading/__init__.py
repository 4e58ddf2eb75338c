"""Reading: other people's text becomes checked values, and each problem has its place."""
