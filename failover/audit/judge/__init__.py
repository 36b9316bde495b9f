"""The rules of the audit, applied to the deliveries of one bucket at a time.

`deliveries` gathers facts about deliveries and their records at routers, `pairs` gathers facts about a delivery and a
subscriber. `uses` distinguishes several uses of one key. The verdicts are functions, one for each of `kinds`: in
`publishers`, `subscribers`, `routers` and, over all buckets, `order`. A `tally` counts the verdicts. No module here
reads a file, or measures how the run went; `measure` does that.
"""
