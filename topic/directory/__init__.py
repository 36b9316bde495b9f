"""Who is where: the links of all routers, as one router knows them. Nothing of deliveries, and nothing is sent."""
