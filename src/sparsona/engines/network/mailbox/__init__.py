"""A mailbox as a carrier: sealed files in a folder, bucket or account that all parties can read and write.

- `store`: the folder through fsspec; files appear whole;
- `seal`: parcels that only one key can open and only one key can have closed;
- `boxes`: the organiser's carrier, and the owner's inbox.

The storage's owner sees the sender, the receiver, the number and the length of each file. It can withhold files, and
nothing else: what it writes, changes, moves or repeats is refused.
"""
