package operator

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"errors"
	"fmt"
	"math/big"
	"net"
	"os"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// certificate is what the endpoint proves itself with.
type certificate struct {
	get func(*tls.ClientHelloInfo) (*tls.Certificate, error)
	// fingerprint is that of a certificate made at start, empty for one from files: that may change while the process
	// runs, so clients verify it with its CA.
	fingerprint string
	// watcher reads files again when they change; nil for a certificate made at start.
	watcher *certwatcher.CertWatcher
}

func newCertificate(options Options) (*certificate, error) {
	certFile, keyFile := options.ServingCertFile, options.ServingKeyFile
	switch {
	case certFile == "" && keyFile == "":
		return selfSigned(options.Namespace)
	case certFile == "" || keyFile == "":
		return nil, errors.New("a serving certificate needs both --serving-cert-file and --serving-key-file")
	}
	watcher, err := certwatcher.New(certFile, keyFile)
	if err != nil {
		return nil, fmt.Errorf("reading the serving certificate: %w", err)
	}
	return &certificate{get: watcher.GetCertificate, watcher: watcher}, nil
}

// selfSignedFor is longer than any process lives: what makes the certificate trusted is its fingerprint in the Lease,
// and that goes when the process does.
const selfSignedFor = 10 * 365 * 24 * time.Hour

// selfSigned makes a key and a certificate that exist in memory only.
func selfSigned(namespace string) (*certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a serving key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading the name of this host: %w", err)
	}
	const name = "cluster-version-operator"
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: name},
		DNSNames:     []string{"localhost", host, name + "." + namespace + ".svc"},
		IPAddresses:  []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
		NotBefore:    now.Add(-time.Hour), // clocks differ
		NotAfter:     now.Add(selfSignedFor),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("making a serving certificate: %w", err)
	}
	served := &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
	return &certificate{
		get:         func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return served, nil },
		fingerprint: Fingerprint(der),
	}, nil
}

// Fingerprint is the SHA-256 digest of a certificate's DER, in base64url without padding: 43 characters.
func Fingerprint(der []byte) string {
	sum := sha256.Sum256(der)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// config is what the endpoint's TLS is set up with; handshakes may make it stricter. A client certificate is asked for, never demanded, and verified by
// guard: a handshake cannot say that a token would do as well.
func (c *certificate) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: c.get,
		ClientAuth:     tls.RequestClientCert,
	}
}
