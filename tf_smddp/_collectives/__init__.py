"""The collectives that users call, each with its op and its gradient."""
