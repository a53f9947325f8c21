package main

import (
	"bytes"
	"encoding/pem"

	"golang.org/x/crypto/x509roots/fallback/bundle"
)

// rootCertificates are those that Mozilla trusts for servers, at the version that go.mod pins: not this machine's, which
// others would have to have for the same image. Roots that are trusted only in part are left out, because a file of
// certificates cannot say in which.
func rootCertificates() []byte {
	var out bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		_ = pem.Encode(&out, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}) // a Buffer takes everything
	}
	return out.Bytes()
}
