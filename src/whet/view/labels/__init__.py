"""The queue of `whet judge label`: what a person is asked, blind to who is compared and to what the judge said."""
