"""Search: find one candidate by an engine from elsewhere, which runs and changes versions on practice cases."""
