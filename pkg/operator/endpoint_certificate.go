package operator

import (
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

// pinnedName is the server name by which a client asks for the certificate with the key whose fingerprint it knows. It
// is no name of any host.
const pinnedName = "pinned.cluster-version-operator"

// certificate is what the endpoint proves itself with: a certificate of its own for a key that lives as long as the
// process, and one from files for everybody but the clients that know the fingerprint of the former.
type certificate struct {
	key *ecdsa.PrivateKey
	// own is signed by its own key at first, and by the operator's CA once there is one.
	own atomic.Pointer[tls.Certificate]
	// names are what own is for.
	names serverNames
	// given is nil if there are no files.
	given *givenCertificate
}

// newCertificate reads the files, unless they may come later, and makes a key.
func newCertificate(clk clock.PassiveClock, options Options) (*certificate, error) {
	c := &certificate{}
	switch certFile, keyFile := options.ServingCertFile, options.ServingKeyFile; {
	case (certFile == "") != (keyFile == ""), certFile == "" && options.ServingCertOptional:
		return nil, errors.New("a serving certificate needs both --serving-cert-file and --serving-key-file")
	case certFile != "":
		c.given = &givenCertificate{clock: clk, certFile: certFile, keyFile: keyFile, every: lookForFilesEvery}
		if err := c.given.read(); err != nil && !options.ServingCertOptional {
			return nil, fmt.Errorf("reading the serving certificate: %w", err)
		}
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("reading the name of this host: %w", err)
	}
	c.names = newServerNames(host, options.Namespace, options.PodIP)
	if c.key, err = newKey(); err != nil {
		return nil, err
	}
	template, err := c.names.template(clk.Now(), selfSignedFor)
	if err != nil {
		return nil, err
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, c.key.Public(), c.key)
	if err != nil {
		return nil, fmt.Errorf("making a serving certificate: %w", err)
	}
	return c, c.use(der)
}

// selfSignedFor is longer than any process lives: what makes the certificate trusted is the fingerprint of its key in
// the Lease, and that goes when the process does.
const selfSignedFor = 10 * 365 * 24 * time.Hour

func newKey() (*ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a serving key: %w", err)
	}
	return key, nil
}

// use serves another certificate of the own key from now on.
func (c *certificate) use(der []byte) error {
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return fmt.Errorf("making a serving certificate: %w", err)
	}
	c.own.Store(&tls.Certificate{Certificate: [][]byte{der}, PrivateKey: c.key, Leaf: leaf})
	return nil
}

// fingerprint is that of the own key.
func (c *certificate) fingerprint() string { return Fingerprint(c.own.Load().Leaf) }

func (c *certificate) get(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c.given != nil && hello.ServerName != pinnedName {
		if given := c.given.current(); given != nil {
			return given, nil
		}
	}
	return c.own.Load(), nil
}

// Fingerprint is the SHA-256 digest of a certificate's public key, in base64url without padding: 43 characters. It is
// that of the key because a certificate is signed anew while a process lives, and the Lease is not.
func Fingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.RawSubjectPublicKeyInfo)
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

// serverNames are the hosts that a certificate is for.
type serverNames struct {
	dns []string
	ips []net.IP
}

// servingName is the name of the Service, and of whoever serves.
const servingName = "cluster-version-operator"

func newServerNames(host, namespace, podIP string) serverNames {
	service := servingName + "." + namespace + ".svc"
	names := serverNames{
		dns: []string{"localhost", host, service, service + ".cluster.local"},
		ips: []net.IP{net.IPv4(127, 0, 0, 1), net.IPv6loopback},
	}
	if ip := net.ParseIP(podIP); ip != nil {
		names.ips = append(names.ips, ip)
	}
	return names
}

// template is a certificate for the names that waits for a signature.
func (n serverNames) template(now time.Time, lifetime time.Duration) (*x509.Certificate, error) {
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	return &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: servingName},
		DNSNames:     n.dns,
		IPAddresses:  n.ips,
		NotBefore:    now.Add(-clocksDiffer),
		NotAfter:     now.Add(lifetime),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, nil
}

// clocksDiffer is how far a client's clock may be behind.
const clocksDiffer = time.Hour

func newSerial() (*big.Int, error) {
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	return serial, nil
}

// givenCertificate is a certificate from files, which are read again when they change. Where they are not there yet, as
// in a pod whose Secret is optional, they are looked for.
type givenCertificate struct {
	clock             clock.PassiveClock
	certFile, keyFile string
	every             time.Duration
	watcher           atomic.Pointer[certwatcher.CertWatcher]
}

// lookForFilesEvery is how often files are looked for that are not there. It asks nobody but the own disk.
const lookForFilesEvery = 10 * time.Second

func (g *givenCertificate) read() error {
	watcher, err := certwatcher.New(g.certFile, g.keyFile)
	if err != nil {
		return err
	}
	g.watcher.Store(watcher)
	return nil
}

// current is nil while there is none, and when it has expired: whoever gave it has gone, and took the files along or not.
func (g *givenCertificate) current() *tls.Certificate {
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

// NeedLeaderElection implements manager.LeaderElectionRunnable: every replica serves.
func (*givenCertificate) NeedLeaderElection() bool { return false }

// Start implements manager.Runnable.
func (g *givenCertificate) Start(ctx context.Context) error {
	for told := ""; g.watcher.Load() == nil; {
		switch err := g.read(); {
		case err == nil:
			logr.FromContextOrDiscard(ctx).Info("endpoint serves the certificate that it was given", "file", g.certFile)
		case !errors.Is(err, os.ErrNotExist) && err.Error() != told:
			told = err.Error()
			logr.FromContextOrDiscard(ctx).Error(err, "serving certificate not usable", "file", g.certFile)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(g.every):
		}
	}
	return g.watcher.Load().Start(ctx)
}
