"""`feal deploy init`: what a consortium needs to begin, one folder for the coordinator and one for every site."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import yaml

from feal.data.manifest import is_name
from feal.deployment.addresses import host_and_port, is_address, joined_address, listening_host
from feal.deployment.places import COORDINATOR, SITE, CoordinatorSettings, SiteSettings
from feal.errors import FealError
from feal.files import whole_folder
from feal.settings import Section

CERTIFICATES = """#!/bin/sh
# Run at the coordinator: the consortium's certificate authority, once, and this machine's certificate.
# authority.key signs certificates: keep it off line afterwards. Only authority.crt goes to the sites.
set -eu
umask 077
CDPATH= cd -- "$(dirname -- "$0")"
mkdir -p certificates
cd certificates
test ! -e server.crt || {{
    echo "There is a certificate already: remove server.crt and server.key to make another." >&2
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
test -e authority.key || {{ echo "authority.key is not here: put it back to sign a certificate." >&2; exit 2; }}
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
KEY = """#!/bin/sh
# Run once, at this site: the key that the coordinator knows it by. node.key never leaves this machine.
set -eu
umask 077
CDPATH= cd -- "$(dirname -- "$0")"
test ! -e node.key || {{ echo "There is a key already: remove node.key to make a new one." >&2; exit 2; }}
ssh-keygen -q -t ecdsa -b 384 -N "" -C {name} -f node.key
echo "Send node.key.pub to the coordinator, which puts it at keys/{name}.pub."
"""
START_COORDINATOR = """#!/bin/sh
# Starts the coordinator; it goes on until it is interrupted.
CDPATH= cd -- "$(dirname -- "$0")" && exec feal deploy coordinator .
"""
START_SITE = """#!/bin/sh
# Starts this site; the prepared folder with its data is the argument. It goes on until it is interrupted.
data=$(realpath "${1:?give the folder of prepared data}") || exit 2
CDPATH= cd -- "$(dirname -- "$0")" && exec feal deploy site . --data "$data"
"""
CHECKLIST = """# Checklist

The coordinator is {address}; the sites are {sites}.
docs/deployment.md tells more, and what to do when something fails.

At the coordinator, with the folder `coordinator`:

- [ ] The same version of feal is installed here and at every site: `feal --version`.
- [ ] `sh make-certificates.sh` has been run; `certificates/authority.key` is kept off line.
- [ ] `certificates/authority.crt` has been sent to every site.
- [ ] The firewall lets the sites' addresses, and nobody else, reach port {port}; it is the only port.
- [ ] The clock is right (NTP).

At every site, with its own folder below `sites`:

- [ ] `sh make-key.sh` has been run, and `node.key.pub` sent to the coordinator over a way that both trust.
- [ ] `authority.crt` lies beside `site.yaml`; its fingerprint was compared by telephone:
      `openssl x509 -in authority.crt -noout -fingerprint -sha256`
- [ ] The data are prepared (`feal data prepare`) under the site's name, with the classes and size of all others,
      and `feal data check` finds nothing wrong with them.
- [ ] The clock is right (NTP): the site signs the time.
- [ ] The machine may dial {address}; nothing needs to reach it from outside.

Then:

- [ ] The coordinator has every key in `keys/` (`ssh-keygen -lf keys/NAME.pub`, compared by telephone).
- [ ] The coordinator runs: `sh start.sh`.
- [ ] Every site runs: `sh start.sh /path/of/the/prepared/folder`.
- [ ] `feal deploy status coordinator` shows every site as connected.
- [ ] `feal run PRESET engine=flower deployment.coordinator=coordinator --out runs/first` at the coordinator.
"""


def write_kit(folder: Path, *, address: str, sites: Sequence[str]) -> None:
    """Write the consortium's folder.

    Args:
        folder: new, or empty.
        address: HOST:PORT by which sites reach the coordinator; beyond loopback it then listens on all interfaces.
        sites: their names.

    Raises:
        FealError: an address or a name that cannot be used, or a folder that holds something.
    """
    host, port = host_and_port(address)
    for name in sites:
        if not is_name(name) or list(sites).count(name) > 1:
            raise FealError(
                f"{name!r} is no name of a site, or is given twice: use letters, digits, - and _ only."
            )
    listen = listening_host(host)
    names = ",".join(dict.fromkeys([_subject(host), "DNS:localhost", "IP:127.0.0.1"]))
    address = joined_address(host, port)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise FealError(f"{folder} holds something already: name a new folder.")
    if folder.absolute() == Path.cwd():
        # It gets its name only when it is whole, and a shell would be left in the one that was there before.
        raise FealError("The folder that you are in cannot be it: name a new folder.")
    with whole_folder(folder) as new:
        coordinator = new / "coordinator"
        keys = {name: f"keys/{name}.pub" for name in sorted(sites)}
        (coordinator / "keys").mkdir(parents=True)
        _settings(coordinator / COORDINATOR, CoordinatorSettings(host=listen, port=port, sites=keys))
        (coordinator / "make-certificates.sh").write_text(CERTIFICATES.format(names=names))
        (coordinator / "start.sh").write_text(START_COORDINATOR)
        for name in sorted(sites):
            site = new / "sites" / name
            site.mkdir(parents=True)
            _settings(site / SITE, SiteSettings(name=name, coordinator=address))
            (site / "make-key.sh").write_text(KEY.format(name=name))
            (site / "start.sh").write_text(START_SITE)
        text = CHECKLIST.format(address=address, port=port, sites=", ".join(sorted(sites)))
        (new / "CHECKLIST.md").write_text(text)


def _subject(host: str) -> str:
    return f"IP:{host}" if is_address(host) else f"DNS:{host}"


def _settings(path: Path, settings: Section) -> None:
    """Write settings down with what each of them means."""
    lines = []
    for name, field in type(settings).model_fields.items():
        entry = yaml.safe_dump({name: getattr(settings, name)}, sort_keys=False).rstrip()
        lines += [f"# {field.description}", entry if getattr(settings, name) is not None else f"# {name}:"]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
