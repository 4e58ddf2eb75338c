"""What labels of people say of a judge: in figures, in words, and beside a decision."""
