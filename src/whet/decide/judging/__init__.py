"""Labels of people on what a judge decided: the draw, how well the judge agrees, and what that does to a difference."""
