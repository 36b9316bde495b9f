"""The command `oncemesh` with all its commands, in the order in which a user meets them.

This module names commands of this package and of `failover`, and imports none of them. A command is loaded when the
user names it.
"""

import sys

if sys.argv[1:2] == ["router"]:
    from router.mesh.signals import put_off

    put_off()

from router.cli.loading import interruptible

with interruptible():
    import click

    from router.cli.commands import Commands, Listed


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(package_name="oncemesh")
def main() -> None:
    """A mesh of AMQP 1.0 routers that forwards every message exactly once.

    \b
    Examples:
      oncemesh up topologies/triangle.yaml --detach
      oncemesh status
      oncemesh down
    """


for _name, _place, _help in (
    ("up", "failover.cli.mesh:up", "Start the mesh of a topology file."),
    (
        "status",
        "failover.cli.watch.status:status",
        "Show routers, links and clients, and which subscribers messages wait for.",
    ),
    (
        "top",
        "failover.cli.watch.top:top",
        "Show message rates of routers, queues, connections and clients, the busiest first, until Ctrl-C.",
    ),
    (
        "events",
        "failover.cli.watch.events:events",
        "Print events: clients that attach, move or expire, routers that come and go, refused requests.",
    ),
    (
        "doctor",
        "failover.cli.doctor.command:doctor",
        "Check this host, a topology and the mesh that runs here; print each fault and its remedy.",
    ),
    ("start", "failover.cli.mesh:start", "Start stopped routers of a mesh, or all of them if you name none."),
    ("stop", "failover.cli.mesh:stop", "Stop routers of a running mesh, or all of them if you name none."),
    ("drain", "failover.cli.mesh:drain", "Move a router's clients to other routers, then stop it."),
    ("down", "failover.cli.mesh:down", "Stop all routers of a mesh."),
    ("apply", "failover.cli.plan.apply:apply", "Change a running mesh to match a topology file."),
    ("remove", "failover.cli.plan.apply:remove", "Remove a router from a running mesh for good."),
    ("join", "failover.cli.plan.join:join", "Start a router here that joins a mesh on other hosts."),
    ("router", "router.cli.router:router", "Run one router in the foreground, for a mesh on several hosts."),
    (
        "render",
        "router.cli.hosts.render:render",
        "Write systemd units and a compose file that run a mesh on its hosts.",
    ),
    (
        "import",
        "router.cli.hosts.imported:import_",
        "Make a topology of configurations of qpid-dispatch or skupper-router.",
    ),
    ("publish", "failover.cli.publish:publish", "Publish messages; exit status 0 only if all were accepted."),
    ("subscribe", "failover.cli.subscribe:subscribe", "Print each message that arrives, then accept it."),
    (
        "unsubscribe",
        "failover.cli.subscribe:unsubscribe",
        "End a subscription of `subscribe --state` for good; publishers no longer wait for it.",
    ),
    (
        "forget",
        "failover.cli.watch.forget:forget",
        "End a link whose client is gone for good; publishers no longer wait for it.",
    ),
    (
        "queue",
        "failover.cli.watch.queue:queue",
        "Declare and change the replicated queues of a mesh, and look after their replica sets.",
    ),
    ("bench", "failover.cli.bench.command:bench", "Load a running mesh and measure its rate and latency."),
    ("chaos", "failover.cli.chaos:chaos", "Run a mesh under load, inject the faults of a script, then audit the run."),
    (
        "audit",
        "failover.cli.audit:audit",
        "Check the delivery logs of a run for lost, repeated and reordered messages.",
    ),
    ("story", "failover.cli.audit:story", "Show the history of one delivery at all routers and clients."),
    (
        "demo",
        "failover.cli.demo:demo",
        "Show failover in action: start a mesh, kill routers under load, audit the run.",
    ),
    (
        "user",
        "router.cli.access.user:user",
        "Manage the users and passwords of a mesh (the file `security.users` of its topology).",
    ),
    ("certs", "router.cli.access.certs:certs", "Create certificates to try out TLS."),
    (
        "completion",
        "router.cli.completion:completion",
        "Print the shell script that completes commands and options on Tab.",
    ),
):
    main.add_command(Listed(_name, _place, _help))
