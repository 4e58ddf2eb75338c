"""The page of the service: what there is to see, in a browser, by the same API that everybody else has."""
