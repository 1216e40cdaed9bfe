"""The papers' experiments: which runs there are, what each paper claims, and what came out.

One file or folder per paper. :func:`sparsona_papers.reproduce.reproduce` makes a paper's runs and
:func:`sparsona_papers.reproduce.card` writes its card; `sparsona reproduce` and `sparsona card` call them.
"""
