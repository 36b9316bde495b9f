"""A systemd unit for a router. systemd stops the router by a drain, restarts it if it fails, and takes all rights from
it that it does not need."""

from typing import Final

from router.deploy.place import CONFIGURATION, PATIENCE_S, PROGRAM, STATE, STOP_SIGNAL, USER, capabilities, command
from router.mesh.config import Topology

UNIT: Final = """\
[Unit]
Description=oncemesh router {router} of mesh {mesh}
Wants=network-online.target
After=network-online.target
StartLimitIntervalSec=0

[Service]
ExecStart={command}
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
RestartSec=1
# Its clients are sent to other routers first.
KillSignal={signal}
TimeoutStopSec={patience}
User={user}
Group={user}
UMask=0077
StateDirectory={state}
StateDirectoryMode=0700
ReadOnlyPaths={configuration}
CapabilityBoundingSet={capabilities}
AmbientCapabilities={capabilities}
LockPersonality=yes
NoNewPrivileges=yes
PrivateDevices=yes
PrivateTmp=yes
ProtectClock=yes
ProtectControlGroups=yes
ProtectHome=yes
ProtectHostname=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
ProtectSystem=strict
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service

[Install]
WantedBy=multi-user.target
"""


def unit(topology: Topology, router: str) -> tuple[str, str]:
    """The name of the router's unit, and its content."""
    text = UNIT.format(
        router=router,
        mesh=topology.mesh,
        command=" ".join([PROGRAM, *command(topology, router)]),
        signal=STOP_SIGNAL,
        patience=PATIENCE_S,
        user=USER,
        state=(STATE / topology.mesh).relative_to(STATE.parent),
        configuration=CONFIGURATION,
        capabilities=" ".join(f"CAP_{name}" for name in capabilities(topology, router)),
    )
    return f"oncemesh-{topology.mesh}-{router}.service", text
