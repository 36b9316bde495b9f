"""The clients and routers of a run, with their links, contacts and clocks, as the control rows show them: a `case`.

No module here judges single deliveries. Only `exchanges` reads some deliveries, to compare clocks.
"""
