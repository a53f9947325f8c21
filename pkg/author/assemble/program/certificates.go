package program

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// RootCertificates returns the certificates that Mozilla trusts for servers, at the version that go.mod pins, as PEM. This machine's
// certificates would make images differ between machines. Partially trusted roots are omitted, because a file of certificates cannot
// express the restriction.
func RootCertificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // writing to a Buffer does not fail
	}
	return out.Bytes()
}
