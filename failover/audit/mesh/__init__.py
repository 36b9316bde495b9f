"""The participants of a run, and what the control rows tell of links, routers and their clocks: a `case`.

No module here judges single deliveries. Only `exchanges` reads some deliveries, to compare clocks.
"""
