"""What an improve run keeps: improve.json, its folders, and the chain that ties its steps together."""
