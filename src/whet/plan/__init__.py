"""Planning: a request and the settings become a `Plan`; nothing is started."""
