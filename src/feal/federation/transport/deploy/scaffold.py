"""Write the files of a new consortium: a folder for the coordinator and one for each site (`feal deploy init`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from feal.data.manifest import is_name
from feal.errors import FealError
from feal.federation.transport.deploy.addresses import (
    choose_listen_host,
    format_address,
    is_ip_address,
    parse_address,
)
from feal.federation.transport.deploy.config import COORDINATOR_FILE, SITE_FILE, CoordinatorSettings, SiteSettings
from feal.fileio import atomic_directory
from feal.settings import Section

CERTIFICATES_SCRIPT = """#!/bin/sh
# Run this at the coordinator. It creates the certificate authority of the consortium, once, and the certificate
# of this machine. authority.key signs certificates: keep it offline afterwards. Sites receive only authority.crt.
set -eu
umask 077
CDPATH= cd -- "$(dirname -- "$0")"
mkdir -p certificates
cd certificates
test ! -e server.crt || {{
    echo "A certificate exists already: remove server.crt and server.key to create another." >&2
    exit 2
}}
cat > authority.cnf <<END
[req]
distinguished_name=subject
x509_extensions=authority
[subject]
[authority]
basicConstraints=critical,CA:TRUE
keyUsage=critical,keyCertSign
subjectKeyIdentifier=hash
END
test -e authority.crt || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -days 3650 \\
    -subj "/CN=consortium" -config authority.cnf -keyout authority.key -out authority.crt
test -e authority.key || {{ echo "authority.key is missing: restore it to sign a certificate." >&2; exit 2; }}
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -subj "/CN=coordinator" \\
    -keyout server.key -out server.csr
cat > server.ext <<END
subjectAltName={names}
basicConstraints=CA:FALSE
extendedKeyUsage=serverAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
END
openssl x509 -req -in server.csr -CA authority.crt -CAkey authority.key -CAcreateserial -days 825 \\
    -extfile server.ext -out server.crt
rm authority.cnf server.csr server.ext
echo "Send certificates/authority.crt to every site."
"""
KEY_SCRIPT = """#!/bin/sh
# Run this once at the site. It creates the key that identifies the site; node.key never leaves this machine.
set -eu
umask 077
CDPATH= cd -- "$(dirname -- "$0")"
test ! -e node.key || {{ echo "A key exists already: remove node.key to create a new one." >&2; exit 2; }}
ssh-keygen -q -t ecdsa -b 384 -N "" -C {name} -f node.key
echo "Send node.key.pub to the coordinator, where it is stored as keys/{name}.pub."
"""
COORDINATOR_SCRIPT = """#!/bin/sh
# Start the coordinator; it runs until it is interrupted.
CDPATH= cd -- "$(dirname -- "$0")" && exec feal deploy coordinator .
"""
SITE_SCRIPT = """#!/bin/sh
# Start this site; the argument is the prepared folder with its data. It runs until it is interrupted.
data=$(realpath "${1:?give the folder of prepared data}") || exit 2
CDPATH= cd -- "$(dirname -- "$0")" && exec feal deploy site . --data "$data"
"""
CHECKLIST = """# Checklist

The coordinator is {address}; the sites are {sites}.
docs/deployment.md has the details, and what to do when something fails.

At the coordinator, with the folder `coordinator`:

- [ ] The same version of feal is installed here and at every site: `feal --version`.
- [ ] `sh make-certificates.sh` has been run; `certificates/authority.key` is kept offline.
- [ ] `certificates/authority.crt` has been sent to every site.
- [ ] The firewall admits only the addresses of the sites, and only to port {port}.
- [ ] The clock is right (NTP).

At every site, with its own folder from `sites`:

- [ ] `sh make-key.sh` has been run, and `node.key.pub` sent to the coordinator over a channel that both trust.
- [ ] `authority.crt` is beside `site.yaml`; its fingerprint was compared by telephone:
      `openssl x509 -in authority.crt -noout -fingerprint -sha256`
- [ ] The data are prepared (`feal data prepare`) under the site's name, with the same classes and image size as at
      all other sites, and `feal data check` reports no problem.
- [ ] The clock is right (NTP): the signature of each request contains the time.
- [ ] The machine can connect to {address}; it needs no open port.

Then:

- [ ] The coordinator has every key in `keys/` (`ssh-keygen -lf keys/NAME.pub`, compared by telephone).
- [ ] The coordinator is running: `sh start.sh`.
- [ ] Every site is running: `sh start.sh /path/of/the/prepared/folder`.
- [ ] `feal deploy status coordinator` shows every site as connected.
- [ ] `feal run PRESET transport=flower transport.coordinator=coordinator --out runs/first` at the coordinator.
"""


def write_consortium_files(folder: Path, *, address: str, sites: Sequence[str]) -> None:
    """Write the folders of a consortium.

    Args:
        folder: a new or empty folder.
        address: HOST:PORT of the coordinator; unless it is a loopback address, it listens on all interfaces.
        sites: names of the sites.

    Raises:
        FealError: an invalid address or name, or a folder that is not empty.
    """
    host, port = parse_address(address)
    for name in sites:
        if not is_name(name) or list(sites).count(name) > 1:
            raise FealError(
                f"{name!r} is not a valid site name or is given twice: use only letters, digits, - and _."
            )
    listen = choose_listen_host(host)
    names = ",".join(dict.fromkeys([_format_alternative_name(host), "DNS:localhost", "IP:127.0.0.1"]))
    address = format_address(host, port)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FealError(f"{folder} is not empty: name a new folder.")
    if folder.absolute() == Path.cwd():
        # The finished folder replaces the old one, in which a shell would stay.
        raise FealError("Cannot create the consortium in the current directory: name a new folder.")
    with atomic_directory(folder) as new:
        coordinator = new / "coordinator"
        keys = {name: f"keys/{name}.pub" for name in sorted(sites)}
        (coordinator / "keys").mkdir(parents=True)
        _write_settings(coordinator / COORDINATOR_FILE, CoordinatorSettings(host=listen, port=port, sites=keys))
        (coordinator / "make-certificates.sh").write_text(CERTIFICATES_SCRIPT.format(names=names))
        (coordinator / "start.sh").write_text(COORDINATOR_SCRIPT)
        for name in sorted(sites):
            site = new / "sites" / name
            site.mkdir(parents=True)
            _write_settings(site / SITE_FILE, SiteSettings(name=name, coordinator=address))
            (site / "make-key.sh").write_text(KEY_SCRIPT.format(name=name))
            (site / "start.sh").write_text(SITE_SCRIPT)
        text = CHECKLIST.format(address=address, port=port, sites=", ".join(sorted(sites)))
        (new / "CHECKLIST.md").write_text(text)


def _format_alternative_name(host: str) -> str:
    return f"IP:{host}" if is_ip_address(host) else f"DNS:{host}"


def _write_settings(path: Path, settings: Section) -> None:
    """Write settings with their descriptions as comments."""
    lines = []
    for name, field in type(settings).model_fields.items():
        entry = yaml.safe_dump({name: getattr(settings, name)}, sort_keys=False).rstrip()
        lines += [f"# {field.description}", entry if getattr(settings, name) is not None else f"# {name}:"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
