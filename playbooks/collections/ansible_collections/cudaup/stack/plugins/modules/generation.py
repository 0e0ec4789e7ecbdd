"""One call per host for the whole prepare phase: each module costs the controller 50 ms per host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: generation
short_description: Stage a generation with cudaup's host program
version_added: 0.1.0
author: The cudaup authors (@cudaup)
description:
  - Installs cudaup's host program when given, adopts an existing environment when asked, and stages a generation.
  - All three by the host program's own verbs; this module only passes them on.
  - The service that runs from the old environment is not touched.
  - Wheels named in O(spec) must be in the host's store already.
options:
  program:
    description:
      - The host program's zip archive on the controller, sent and installed when the host has another.
      - Without it the installed one is called.
    type: path
  sha256:
    description: The hash of O(program), set by the action plugin. Anything else that arrived is not run.
    type: str
  adopt:
    description: An existing environment to adopt where it lies.
    type: path
  spec:
    description: The generation, as the host program's C(stage) takes it.
    type: dict
    required: true
  epoch:
    description: The fencing epoch of the lease the caller holds. Without it the host program takes the lease itself.
    type: int
attributes:
  check_mode:
    description: The host program is asked with C(--dry-run).
    support: full
  diff_mode:
    description: There is no text to compare.
    support: none
  platform:
    description: Linux hosts with Python 3.8 or newer.
    support: full
    platforms: linux
"""

EXAMPLES = r"""
- name: Stage a generation beside the running one
  cudaup.stack.generation:
    adopt: /root/ml-env
    epoch: 3
    spec:
      name: cu130-demo
      python:
        version: ">=3.11,<3.12"
        executable: null
      wheels: []
      uv: null
      toolkit: null
      env: {}
      imports: []
"""

RETURN = r"""
installed:
  description: The answer of C(host install).
  returned: when O(program) was given and the host had another
  type: dict
  sample:
    changed: true
    sha256: 9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
adopted:
  description: The answer of C(adopt).
  returned: when O(adopt) was given
  type: dict
  sample:
    changed: false
    generation: 0001-77aa01
staged:
  description: The answer of C(stage).
  returned: success
  type: dict
  sample:
    changed: true
    generation: 0002-3f9c1a
code:
  description: The host program's own reason.
  returned: when it refused or failed
  type: str
  sample: stale-epoch
"""

import sys
import tempfile

from ansible.module_utils.basic import AnsibleModule

from ..module_utils._host_program import INSTALLED, Step, answer, has_changed, message, options, own_copy, steps


def call(module: AnsibleModule, program: str, step: Step) -> dict:
    """What the host program answered, or an object of the same shape when it gave no answer."""
    command = [sys.executable, program, *step.argv]
    command += options(module.params["epoch"], dry_run=module.check_mode)
    status, stdout, stderr = module.run_command(command, data=step.stdin, binary_data=True, check_rc=False)
    silence = "the host program ended with " + str(status) + " and gave no answer: " + stderr[-4000:]
    return answer(stdout) or {"kind": "broken", "text": silence}


def prepare(module: AnsibleModule, program: str) -> None:
    done = {}
    changed = False
    for step in steps(module.params):
        found = call(module, program, step)
        data = found.get("data") or {}
        if found["kind"] != "result":
            # What earlier steps changed stays changed, and is said.
            module.fail_json(msg=message(found), step=step.key, code=found.get("code", ""), changed=changed, **done)
        done[step.key] = data
        changed = changed or has_changed(data)
    module.exit_json(changed=changed, **done)


def main() -> None:
    module = AnsibleModule(
        argument_spec={
            "program": {"type": "path"},
            "sha256": {"type": "str"},
            "adopt": {"type": "path"},
            "spec": {"type": "dict", "required": True},
            "epoch": {"type": "int"},
        },
        supports_check_mode=True,
    )
    with tempfile.TemporaryDirectory(prefix="cudaup-") as private:
        try:
            program = own_copy(module.params["program"], module.params["sha256"], private) or INSTALLED
        except (OSError, ValueError) as error:
            module.fail_json(msg=str(error), code="unsafe", changed=False)
        prepare(module, program)


if __name__ == "__main__":
    main()
