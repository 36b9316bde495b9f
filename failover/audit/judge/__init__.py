"""The rules, for the deliveries of one bucket at a time.

`deliveries` gathers facts about deliveries and their records at routers, and `pairs` facts about a delivery and a
subscriber. `uses` tells the uses of a key apart. The verdicts are functions, one for each of `kinds`, in `publishers`,
`subscribers`, `routers` and, over all buckets, `order`. A `tally` counts them. No module here reads a file, or measures
how the run went: `measure` does that.
"""
