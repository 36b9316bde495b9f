"""Who took part, and what is known of links, routers and their clocks, told by control rows alone: a `case`.

Nothing here is about single deliveries, but that `exchanges` compares clocks by some of them.
"""
