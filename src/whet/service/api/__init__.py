"""The routes of the service, who may call them, and what they answer."""
