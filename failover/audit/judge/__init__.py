"""The rules, for the deliveries of one bucket at a time.

Facts are gathered first: `deliveries` and their records at routers, `pairs` of a delivery and a subscriber; keys that
were used again are told apart in `uses`. The verdicts are functions, one for each of `kinds`, in `publishers`,
`subscribers`, `routers` and, over all buckets, `order`; what they count is a `tally`. No file is read here, and nothing
is said of how the run went: that is in `measure`.
"""
