"""What makes a host its own: the files that lie in its upper from the start."""

from __future__ import annotations

import shutil
import subprocess
import uuid
from pathlib import Path

from cudaup.lab import gpus
from cudaup.lab.paths import Files
from cudaup.lab.spec import HostSpec, LabSpec


def populate(upper: Path, host: HostSpec, lab: LabSpec) -> None:
    """Folders that also lie in the lower must look like there: an upper's folder hides the lower's owner and mode."""
    upper.chmod(0o755)
    keys = Files(lab.directory)
    ssh = upper / "etc/ssh"
    ssh.mkdir(parents=True)
    shutil.copy(keys.host_key(host.name), ssh / "ssh_host_ed25519_key")  # copy keeps the key's mode, 0600
    (upper / "root").mkdir(mode=0o700)
    _authorize(upper / "root", keys)
    _name(upper / "etc", host, lab)
    if lab.user:
        _add_user(upper, lab.user, lab.root / "root", keys)
    # In the upper, not the lower: overlayfs refuses to rename a folder of the lower (EXDEV), and adopting renames it.
    subprocess.run(["cp", "-a", str(lab.root / "ml-env"), str(upper / "root/ml-env")], check=True)
    if host.gpus != "none":
        gpus.install(upper, host.gpus, f"{lab.name}/{host.name}")


def _name(etc: Path, host: HostSpec, lab: LabSpec) -> None:
    machine_id = uuid.uuid5(uuid.NAMESPACE_DNS, f"{host.name}.{lab.name}.cudaup.invalid").hex
    (etc / "machine-id").write_text(f"{machine_id}\n")
    (etc / "hostname").write_text(f"{host.name}\n")
    known = "".join(f"{other.address} {other.name}\n" for other in lab.hosts)
    (etc / "hosts").write_text(f"127.0.0.1 localhost\n{known}")


def _authorize(home: Path, keys: Files) -> None:
    (home / ".ssh").mkdir(mode=0o700)
    (home / ".ssh/authorized_keys").write_text(keys.user_key.with_suffix(".pub").read_text())


def _add_user(upper: Path, name: str, lower: Path, keys: Files) -> None:
    """A login user who may do everything by sudo, with a password; root's own login is closed."""
    uid = 1000
    etc = upper / "etc"
    hashed = _hash(keys.password.read_text().strip(), lower)
    lines = {
        "passwd": f"{name}:x:{uid}:{uid}::/home/{name}:/bin/bash",
        "group": f"{name}:x:{uid}:",
        "shadow": f"{name}:{hashed}:20000:0:99999:7:::",
    }
    for file, line in lines.items():
        shutil.copy2(lower / "etc" / file, etc / file)
        with (etc / file).open("a") as stream:
            stream.write(f"{line}\n")
    shutil.chown(etc / "shadow", group=(lower / "etc/shadow").stat().st_gid)
    (etc / "sudoers.d").mkdir(mode=0o755)
    (etc / "sudoers.d/lab").write_text(f"{name} ALL=(ALL:ALL) ALL\n")
    home = upper / "home" / name
    home.mkdir(parents=True)
    _authorize(home, keys)
    for path in (home, *home.rglob("*")):
        shutil.chown(path, uid, uid)
    config = (lower / "etc/ssh/sshd_config").read_text()
    (etc / "ssh/sshd_config").write_text(config.replace("PermitRootLogin prohibit-password", "PermitRootLogin no"))


def _hash(password: str, lower: Path) -> str:
    """SHA-512 crypt; the root's openssl makes it, because Python 3.13 has no crypt any more."""
    argv = ["chroot", str(lower), "/usr/bin/openssl", "passwd", "-6", "-stdin"]
    done = subprocess.run(argv, input=password, text=True, capture_output=True, check=True)
    return done.stdout.strip()
