"""The links of all routers, as one router knows them. Nothing here concerns deliveries, and nothing here sends."""
