#!/bin/sh
# Run this at the coordinator. It creates the certificate authority of the consortium, once, and the certificate
# of this machine. authority.key signs certificates: keep it offline afterwards. Sites receive only authority.crt.
set -eu
umask 077
CDPATH= cd -- "$(dirname -- "$0")"
mkdir -p certificates
cd certificates
test ! -e server.crt || {
    echo "A certificate exists already: remove server.crt and server.key to create another." >&2
    exit 2
}
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
test -e authority.crt || openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -days 3650 \
    -subj "/CN=consortium" -config authority.cnf -keyout authority.key -out authority.crt
test -e authority.key || { echo "authority.key is missing: restore it to sign a certificate." >&2; exit 2; }
openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-384 -nodes -subj "/CN=coordinator" \
    -keyout server.key -out server.csr
cat > server.ext <<END
subjectAltName={{ names }}
basicConstraints=CA:FALSE
extendedKeyUsage=serverAuth
subjectKeyIdentifier=hash
authorityKeyIdentifier=keyid
END
openssl x509 -req -in server.csr -CA authority.crt -CAkey authority.key -CAcreateserial -days 825 \
    -extfile server.ext -out server.crt
rm authority.cnf server.csr server.ext
echo "Send certificates/authority.crt to every site."
