// Package certificate has the serving certificate of a process. The process has its own key for its whole life, so the key's fingerprint in
// a Lease stays valid. The certificate for this key is first self-signed, then signed by a CA that all replicas share. A Keeper stores the
// CA in a Secret, and its certificates in a ConfigMap for clients. A process may also have a certificate in files, for clients that do not
// know the fingerprint.
//
// Package serve has the server, and package guard checks its callers.
package certificate

import (
	"cmp"
	"context"
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
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/certwatcher"
)

// PinnedName is the server name with which a client requests the certificate for the key whose fingerprint it knows. No host has this name.
const PinnedName = "pinned.cluster-version-operator"

// Options configures a Certificate.
type Options struct {
	// CertFile and KeyFile contain a certificate for clients that do not know the process's own key; empty for none. They are read again
	// when they change.
	CertFile, KeyFile string
	// Optional is true if the files may be missing. The process then serves the certificate for its own key.
	Optional bool
	// Interval is the interval of checks for missing files, which need no requests; zero means 10 s.
	Interval time.Duration
	// Service and Namespace identify the process's Service. Service is also the common name of certificates.
	Service, Namespace string
	// PodIP is the address of the process's pod; empty outside a pod.
	PodIP string
}

// Certificate contains the certificates of a serving process: one for its own key, and optionally one from files. The latter is for all
// clients that do not know the fingerprint of the former.
type Certificate struct {
	key *ecdsa.PrivateKey
	// own is first self-signed, and later signed by a Keeper's CA.
	own atomic.Pointer[tls.Certificate]
	// names are the server names in own.
	names serverNames
	// given is nil if there are no files.
	given *files
}

// New creates a key and reads the files, which may be missing if Optional is set.
func New(clk clock.PassiveClock, options Options) (*Certificate, error) {
	c := &Certificate{}
	switch certFile, keyFile := options.CertFile, options.KeyFile; {
	case (certFile == "") != (keyFile == ""), certFile == "" && options.Optional:
		return nil, errors.New("a serving certificate needs both --serving-cert-file and --serving-key-file")
	case certFile != "":
		c.given = &files{clock: clk, certFile: certFile, keyFile: keyFile, interval: cmp.Or(options.Interval, filesInterval)}
		if err := c.given.read(); err != nil && !options.Optional {
			return nil, fmt.Errorf("reading the serving certificate: %w", err)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading the name of this host: %w", err)
	}
	c.names = newServerNames(host, options)
	if c.key, err = newKey(); err != nil {
		return nil, err
	}
	template, err := c.names.template(clk.Now(), selfSignedFor)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, c.key.Public(), c.key)
	if err != nil {
		return nil, fmt.Errorf("creating a serving certificate: %w", err)
	}
	return c, c.use(der)
}

// selfSignedFor is longer than the life of any process. Trust in the certificate comes from its key's fingerprint in the Lease, which ends
// with the process.
const selfSignedFor = 10 * 365 * 24 * time.Hour

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("creating a serving key: %w", err)
	}
	return key, nil
}

// use replaces the certificate for the own key.
func (c *Certificate) use(der []byte) error {
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("creating a serving certificate: %w", err)
	}
	c.own.Store(&tls.Certificate{Certificate: [][]byte{der}, PrivateKey: c.key, Leaf: leaf})
	return nil
}

// Fingerprint returns the fingerprint of the own key, or "" if c is nil.
func (c *Certificate) Fingerprint() string {
	if c == nil {
		return ""
	}
	return Fingerprint(c.own.Load().Leaf)
}

func (c *Certificate) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.given != nil && hello.ServerName != PinnedName {
		if given := c.given.current(); given != nil {
			return given, nil
		}
	}
	return c.own.Load(), nil
}

// Fingerprint returns the SHA-256 digest of a certificate's public key, in base64url without padding: 43 characters. It covers only the
// key, because certificates are renewed during the life of a process and its identity in the Lease is not.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
	return base64.RawURLEncoding.EncodeToString(sum[:])
}

// TLSConfig returns the TLS configuration of a server, which the caller may make stricter. It requests a client certificate without
// requiring one, because a handshake cannot report that a token would also be accepted. Package guard verifies the certificate.
func (c *Certificate) TLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		NextProtos:     []string{"http/1.1"},
		GetCertificate: c.get,
		ClientAuth:     tls.RequestClientCert,
	}
}

// serverNames contains the hosts in a certificate.
type serverNames struct {
	common string
	dns    []string
	ips    []net.IP
}

func newServerNames(host string, options Options) serverNames {
	service := options.Service + "." + options.Namespace + ".svc"
	names := serverNames{
		common: options.Service,
		dns:    []string{"localhost", host, service, service + ".cluster.local"},
		ips:    []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if ip := net.ParseIP(options.PodIP); ip != nil {
		names.ips = append(names.ips, ip)
	}
	return names
}

// template returns an unsigned certificate for the names.
func (n serverNames) template(now time.Time, lifetime time.Duration) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: n.common},
		DNSNames:     n.dns,
		IPAddresses:  n.ips,
		NotBefore:    now.Add(-clocksDiffer),
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, nil
}

// clocksDiffer is the maximum difference between clocks that certificates tolerate.
const clocksDiffer = time.Hour

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("creating a serial number: %w", err)
	}
	return serial, nil
}

// files is a certificate in files, which are read again when they change. Missing files, such as those of an optional Secret in a pod, are
// checked at intervals.
type files struct {
	clock             clock.PassiveClock
	certFile, keyFile string
	interval          time.Duration
	watcher           atomic.Pointer[certwatcher.CertWatcher]
}

// filesInterval is the default for Options.Interval.
const filesInterval = 10 * time.Second

func (g *files) read() error {
	watcher, err := certwatcher.New(g.certFile, g.keyFile)
	if err != nil {
		return err
	}
	g.watcher.Store(watcher)
	return nil
}

// current returns nil if there is no certificate or it has expired. Files with an expired certificate remain, for example, if its issuer
// was removed.
func (g *files) current() *tls.Certificate {
	watcher := g.watcher.Load()
	if watcher == nil {
		return nil
	}
	certificate, err := watcher.GetCertificate(nil)
	if err != nil || certificate == nil || certificate.Leaf != nil && g.clock.Now().After(certificate.Leaf.NotAfter) {
		return nil
	}
	return certificate
}

// NeedLeaderElection implements manager.LeaderElectionRunnable. Every replica serves.
func (*Certificate) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable. It follows the files.
func (c *Certificate) Start(ctx context.Context) error {
	if c.given == nil {
		return nil
	}
	return c.given.follow(ctx)
}

// follow reads the files again when they change, until ctx ends.
func (g *files) follow(ctx context.Context) error {
	for logged := ""; g.watcher.Load() == nil; {
		switch err := g.read(); {
		case err == nil:
			logr.FromContextOrDiscard(ctx).Info("the endpoint serves the certificate from files", "file", g.certFile)
		case !errors.Is(err, os.ErrNotExist) && err.Error() != logged:
			logged = err.Error()
			logr.FromContextOrDiscard(ctx).Error(err, "cannot use the serving certificate from files", "file", g.certFile)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(g.interval):
		}
	}
	return g.watcher.Load().Start(ctx)
}
