# SPDX-License-Identifier: GPL-3.0-or-later
# This file imports Ansible's plugin classes, so it is under the GNU General Public License v3.0 or later;
# see docs/adr/0002-licences.md.
"""Brings the host program's archive to the host before the module runs, unless the host has that one installed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ..module_utils._host_program import INSTALLED


class ActionModule(ActionBase):
    """One question to the host when nothing has to be sent, so no temporary directory is made in advance."""

    _supports_check_mode = True

    def run(self, tmp: Any = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        result: dict[str, Any] = super().run(tmp, task_vars)
        arguments = dict(self._task.args)
        try:
            if arguments.get("program"):
                arguments["program"], arguments["sha256"] = self._on_the_host(arguments["program"])
            result.update(self._execute_module(module_args=arguments, task_vars=task_vars))
        finally:
            self._remove_tmp_path(self._connection._shell.tmpdir)  # noqa: SLF001  how action plugins are written
        return result

    def _on_the_host(self, program: str) -> tuple[str | None, str]:
        """Where the archive is there, None when the installed program is the same one; and its hash."""
        try:
            content = Path(program).read_bytes()
        except OSError as error:
            raise AnsibleActionFail(f"cannot read the host program: {error}") from None
        digest = hashlib.sha256(content).hexdigest()
        if self._installed(len(content)) == digest:
            return None, digest
        remote: str = self._connection._shell.join_path(self._make_tmp_path(), "cudaup-host.pyz")  # noqa: SLF001  as above
        self._transfer_file(program, remote)
        return remote, digest

    def _installed(self, size: int) -> str:
        """The installed file is a `#!` line and then the archive."""
        answer = self._low_level_execute_command(f"tail -c {size} {INSTALLED} 2>/dev/null | sha256sum", sudoable=True)
        return str(answer["stdout"]).partition(" ")[0]
