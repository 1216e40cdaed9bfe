"""The network engine: the server's loop over messages, and the owner's process on every node.

- `engine`: the engine that :class:`sparsona.federation.rounds.Rounds` drives on the organiser's machine;
- `serverapp`: the run there, from the first greeting to the summary;
- `node`: the owner's process, with torch, the data, the client's memory and the owner's rules;
- `carrier`: what both need of a network, and the numbers that keep messages in order;
- `keys`, `deploy`: certificates and keys, and a whole federation on loopback;
- `flower`: Flower's processes, and the scripts that Flower starts, which import none of this but the server's.

Nothing here imports flwr before it is needed: ``pip install "sparsona[flower]"``.
"""
