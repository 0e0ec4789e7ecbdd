"""The broker of an `ansible-playbook` that was started by hand: `python -m cudaup.adapters.broker_process PID FILE`.

The collection's connection plugin starts it from the first worker that connects and is told the socket's path. It goes
when the playbook goes: its process (PID) or a file in its temporary directory (FILE). What a host needs comes with each
request over the socket, secrets included.
"""

from __future__ import annotations

import os
import shlex
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

from pydantic import SecretStr

from cudaup.adapters.broker import Broker
from cudaup.adapters.connections import Connections
from cudaup.adapters.shell import Shell
from cudaup.domain.inventory import Host

_LOOK_S = 1.0


def host_from_options(options: dict[str, Any]) -> Host:
    """From the connection plugin's options, which are Ansible's own variables."""
    ssh_args = [
        word
        for key in ("ssh_args", "ssh_common_args", "ssh_extra_args")
        for word in shlex.split(options.get(key) or "")
    ]
    password = options.get("password")
    return Host(
        name=options["name"],
        address=options["address"],
        port=options.get("port"),
        user=options.get("user"),
        password=SecretStr(password) if password else None,
        private_key_file=options.get("private_key_file"),
        ssh_args=tuple(ssh_args),
    )


def main(playbook_pid: int, playbook_file: Path) -> None:
    connections = Connections()

    def shell_for(request: dict[str, Any]) -> Shell:
        return connections.shell(host_from_options(request["options"]))

    with closing(connections), Broker(shell_for) as broker:
        sys.stdout.write(f"{broker.socket_path}\n")
        sys.stdout.close()
        while _is_alive(playbook_pid) and playbook_file.exists():
            time.sleep(_LOOK_S)


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
