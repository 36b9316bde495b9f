"""The clients and routers of a run, with their links, contacts and clocks, as the control rows show them. Together they
are a `case`.

No module here judges single deliveries. Only `exchanges` reads some deliveries, in order to compare clocks.
"""
