"""The command `oncemesh`, all its commands in the order in which one meets them.

It names commands of this package and of `failover`, and imports none: the one that is asked for is loaded then.
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
    ("status", "failover.cli.watch.status:status", "Show routers, links, clients and who is being waited for."),
    (
        "top",
        "failover.cli.watch.top:top",
        "Show the rates of routers and of links between routers and of clients, the busiest first, until Ctrl-C.",
    ),
    (
        "events",
        "failover.cli.watch.events:events",
        "Tell what has happened: clients that attach, move, and expire, routers that come and go, what was refused.",
    ),
    (
        "doctor",
        "failover.cli.doctor.command:doctor",
        "Tell what is wrong with this host, a topology, and the mesh that runs here; and what to do.",
    ),
    ("start", "failover.cli.mesh:start", "Start stopped routers of a mesh; all of them if none is named."),
    ("stop", "failover.cli.mesh:stop", "Stop routers of a running mesh; all if none is named."),
    ("drain", "failover.cli.mesh:drain", "Send a router's clients to other routers, then stop it."),
    ("down", "failover.cli.mesh:down", "Stop a mesh."),
    ("apply", "failover.cli.plan.apply:apply", "Make a running mesh what a topology file says."),
    ("remove", "failover.cli.plan.apply:remove", "Take a router out of a running mesh, for good."),
    ("join", "failover.cli.plan.join:join", "Start a router here that joins a mesh which runs on other hosts."),
    ("router", "router.cli.router:router", "Run one router in the foreground, for meshes of several hosts."),
    ("render", "router.cli.hosts.render:render", "Write files that run a mesh on its hosts."),
    ("publish", "failover.cli.publish:publish", "Publish messages; exit status 0 only if all were accepted."),
    ("subscribe", "failover.cli.subscribe:subscribe", "Print messages as they come, and accept each."),
    (
        "unsubscribe",
        "failover.cli.subscribe:unsubscribe",
        "End a subscription that `subscribe --state` has left, for good: publishers wait for it no more.",
    ),
    (
        "forget",
        "failover.cli.watch.forget:forget",
        "End a link whose client is gone for good: nobody waits for it any more.",
    ),
    ("bench", "failover.cli.bench.command:bench", "Load a mesh that runs, and tell how long messages take."),
    ("chaos", "failover.cli.chaos:chaos", "Break a mesh under load, by a script; ends with the verdict."),
    ("audit", "failover.cli.audit:audit", "Judge by the delivery logs of a run whether exactly once holds."),
    ("story", "failover.cli.audit:story", "Tell one delivery's life across routers and clients."),
    ("demo", "failover.cli.demo:demo", "Watch the main job once: a mesh, killed routers, the verdict."),
    ("user", "router.cli.access.user:user", "Who may come in by a password: `security.users` of a topology."),
    ("certs", "router.cli.access.certs:certs", "Certificates for trying TLS out."),
    (
        "completion",
        "router.cli.completion:completion",
        "Print what a shell reads for Tab to complete commands and options.",
    ),
):
    main.add_command(Listed(_name, _place, _help))
