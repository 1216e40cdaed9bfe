"""Several runs with one question: compare methods, tune one, choose one."""
