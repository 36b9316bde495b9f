"""The rules of a router for its local subscribers. This package never knows the audience of a delivery; homes do."""
