"""The yardstick of `make bench`: a line a - b - c, or one router, in bare trio on proton's functions.

The cost of a router above this is the cost of its guarantees. The cost of this line is that of Python, trio and proton.
The publisher is at a, the subscribers are at c, mode second takes its three steps. There is no directory, no delivery
log, no order across failures and no limit.
"""
