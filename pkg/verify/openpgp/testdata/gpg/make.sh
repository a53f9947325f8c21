#!/usr/bin/env bash
# Creates the keys and messages in this folder with GnuPG 2.2. The private keys are discarded, so all files must be
# regenerated together.
set -euo pipefail
cd "$(dirname "$0")"
rm -f ./*.gpg ./*.asc
GNUPGHOME=$(mktemp -d)
export GNUPGHOME
trap 'gpgconf --kill all; rm -rf "$GNUPGHOME"' EXIT
at=20260301T120000
run() { gpg --batch --quiet --no-tty --yes --pinentry-mode loopback --passphrase '' --faked-system-time "$at" "$@"; }

digest=sha256:1111111111111111111111111111111111111111111111111111111111111111
printf '{"critical":{"type":"atomic container signature","image":{"docker-manifest-digest":"%s"},\n"identity":{"docker-reference":"registry.example/platform/release"}},"optional":{"creator":"gpg","timestamp":1772366400}}\n' \
	"$digest" >"$GNUPGHOME/claim"

key() { # name, algorithm, usage, expiry
	run --quick-gen-key "$1 <$1@example.com>" "$2" "$3" "$4"
}
fingerprint() { gpg --batch --with-colons --list-keys "$1@example.com" | awk -F: '$1 == "fpr" {print $10; exit}'; }
public() { run --export "$1@example.com" >"$1.gpg"; }
sign() { # file, key, options
	local file=$1 key=$2
	shift 2
	run --local-user "$key@example.com" --output "$file.msg.gpg" "$@" --sign "$GNUPGHOME/claim"
}

for algorithm in rsa2048 rsa1024 dsa2048 dsa1024 nistp256 ed25519 brainpoolP256r1; do
	key "$algorithm" "$algorithm" sign never
	public "$algorithm"
	sign "$algorithm" "$algorithm" --digest-algo SHA256
done

key sound ed25519 sign never
public sound

for compression in none zip zlib bzip2; do
	sign "compressed-$compression" rsa2048 --compress-algo "$compression"
done
sign textmode rsa2048 --textmode
sign armored ed25519 --armor
sign sha1 rsa2048 --digest-algo SHA1 --allow-weak-digest-algos
sign sha512 rsa2048 --digest-algo SHA512
sign two-signers rsa2048 --local-user ed25519@example.com
sign notation rsa2048 --sig-notation 'signer@example.com=yes'
sign critical-notation rsa2048 --sig-notation '!signer@example.com=yes'
sign expired-signature rsa2048 --default-sig-expire 1d
run --local-user rsa2048@example.com --output detached.msg.gpg --detach-sign "$GNUPGHOME/claim"
run --local-user rsa2048@example.com --output clearsigned.msg.gpg --clearsign "$GNUPGHOME/claim"

key expired-key ed25519 sign seconds=7200
public expired-key
sign expired-key expired-key

key subkeys rsa2048 cert never
run --quick-add-key "$(fingerprint subkeys)" rsa2048 sign never
run --quick-add-key "$(fingerprint subkeys)" rsa2048 encr never
public subkeys
sign subkeys subkeys

key elgamal dsa2048 sign never
run --quick-add-key "$(fingerprint elgamal)" elg2048 encr never
public elgamal
sign elgamal elgamal

revoke() { # name, reason
	sign "$1" "$1"
	printf 'y\n%s\nno more\n\ny\n' "$2" | gpg --no-tty --quiet --command-fd 0 --status-fd 2 --pinentry-mode loopback --passphrase '' \
		--faked-system-time 20260315T120000 --output "$GNUPGHOME/revocation" --gen-revoke "$1@example.com" 2>/dev/null
	run --import "$GNUPGHOME/revocation"
	rm "$GNUPGHOME/revocation"
	public "$1"
}
for reason in 0 1 2 3; do
	key "revoked-$reason" ed25519 sign never
	revoke "revoked-$reason" "$reason"
done

key revoked-uid ed25519 sign never
sign revoked-uid revoked-uid
run --quick-add-uid revoked-uid@example.com 'second <second@example.com>'
at=20260315T120000
run --quick-revoke-uid second@example.com 'second <second@example.com>'
run --export revoked-uid@example.com >revoked-uid.gpg
