"""The yardstick of `make bench`: a line a - b - c, or one router, in bare trio on proton's functions.

What a router costs above this is what its guarantees cost; what this costs is what Python, trio and proton cost. The
publisher is at a, the subscribers are at c, mode second takes its three steps. There is no directory, no delivery log,
no order across failures and no limit.
"""
