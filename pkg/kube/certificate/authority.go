package certificate

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// Lifetimes of a CA. If a renewal fails, there is always a year to notice.
const (
	// caLifetime is the validity of a CA, and caRenewal the remaining validity at which the next one is created.
	caLifetime, caRenewal = 2 * 365 * 24 * time.Hour, 365 * 24 * time.Hour
	// caPublished is the time for which the next CA is in the bundle before it signs, because clients read the bundle only now and then.
	caPublished = 24 * time.Hour
	// leafLifetime is the validity of a serving certificate, and leafRenewal the remaining validity at which it is renewed.
	leafLifetime, leafRenewal = 30 * 24 * time.Hour, 15 * 24 * time.Hour
	// caKept is the time for which a CA stays in the bundle after the next one has started to sign. By then all certificates that it signed
	// have expired, even on a replica that received the new CA late.
	caKept = 2 * leafLifetime
)

// Keys in the CA's Secret, in addition to the keys of the Secret's type.
const (
	caNextCertKey, caNextKeyKey = "next.crt", "next.key"
	caPreviousCertKey           = "previous.crt"
)

// maxCAData is the maximum size of the Secret's data. Normally it has a few kilobytes.
const maxCAData = 64 << 10

// authority is the CA that signs the serving certificates of all replicas. It is immutable: methods that change it return a new one.
type authority struct {
	// name is the prefix of the signers' names.
	name string
	// current signs certificates. next is its successor; nil until shortly before the change.
	current, next *signer
	// previous contains earlier CAs whose certificates may still be in use.
	previous []*x509.Certificate
}

// signer is a CA certificate with its key.
type signer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newSigner(name string, now time.Time) (*signer, error) {
	key, err := newKey()
	if err != nil {
		return nil, err
	}
	serial, err := newSerial()
	if err != nil {
		return nil, err
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		// Each CA needs its own name. If two have the same name, clients try the wrong key.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s-serving-ca@%d", name, now.Unix())},
		NotBefore:             now.Add(-clocksDiffer),
		NotAfter:              now.Add(caLifetime),
		KeyUsage:              x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("creating a CA for serving: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("creating a CA for serving: %w", err)
	}
	return &signer{certificate, key}, nil
}

// newAuthority creates the first CA.
func newAuthority(name string, now time.Time) (authority, error) {
	current, err := newSigner(name, now)
	return authority{name: name, current: current}, err
}

// parseAuthority parses the data of the Secret.
func parseAuthority(name string, data map[string][]byte) (authority, error) {
	size := 0
	for _, value := range data {
		size += len(value)
	}
	if size > maxCAData {
		return authority{}, fmt.Errorf("the CA has %d bytes, more than %d", size, maxCAData)
	}
	current, err := parseSigner(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return authority{}, fmt.Errorf("reading %s and %s: %w", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	ca := authority{name: name, current: current}
	if len(data[caNextCertKey]) > 0 {
		if ca.next, err = parseSigner(data[caNextCertKey], data[caNextKeyKey]); err != nil {
			return authority{}, fmt.Errorf("reading %s and %s: %w", caNextCertKey, caNextKeyKey, err)
		}
	}
	if ca.previous, err = parseCertificates(data[caPreviousCertKey]); err != nil {
		return authority{}, fmt.Errorf("reading %s: %w", caPreviousCertKey, err)
	}
	return ca, nil
}

func parseSigner(certificate, key []byte) (*signer, error) {
	certificates, err := parseCertificates(certificate)
	if err != nil {
		return nil, err
	}
	if len(certificates) != 1 || !certificates[0].IsCA || !certificates[0].BasicConstraintsValid {
		return nil, errors.New("expected one CA certificate")
	}
	block, _ := pem.Decode(key)
	if block == nil {
		return nil, errors.New("the key is not in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the key is not in PKCS #8") // the error may contain parts of the key
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !private.PublicKey.Equal(certificates[0].PublicKey) {
		return nil, errors.New("the key does not belong to the certificate")
	}
	return &signer{certificates[0], private}, nil
}

func parseCertificates(data []byte) ([]*x509.Certificate, error) {
	var certificates []*x509.Certificate
	for {
		block, rest := pem.Decode(data)
		if block == nil {
			return certificates, nil
		}
		certificate, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		certificates, data = append(certificates, certificate), rest
	}
}

// data returns the data for the Secret.
func (ca authority) data() (map[string][]byte, error) {
	data := map[string][]byte{corev1.TLSCertKey: encodeCertificates(ca.current.certificate)}
	var err error
	if data[corev1.TLSPrivateKeyKey], err = ca.current.encodeKey(); err != nil {
		return nil, err
	}
	if ca.next != nil {
		data[caNextCertKey] = encodeCertificates(ca.next.certificate)
		if data[caNextKeyKey], err = ca.next.encodeKey(); err != nil {
			return nil, err
		}
	}
	if len(ca.previous) > 0 {
		data[caPreviousCertKey] = encodeCertificates(ca.previous...)
	}
	return data, nil
}

func (s *signer) encodeKey() ([]byte, error) {
	der, err := x509.MarshalPKCS8PrivateKey(s.key)
	if err != nil {
		return nil, fmt.Errorf("encoding the key of the serving CA: %w", err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: der}), nil
}

func encodeCertificates(certificates ...*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, certificate := range certificates {
		b.Write(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: certificate.Raw}))
	}
	return b.Bytes()
}

// bundle returns the certificates of all CAs whose signatures are in use or will be soon.
func (ca authority) bundle() string {
	certificates := []*x509.Certificate{ca.current.certificate}
	if ca.next != nil {
		certificates = append(certificates, ca.next.certificate)
	}
	return string(encodeCertificates(append(certificates, ca.previous...)...))
}

// renewed returns the CA in its required state at the given time, and whether it has changed. A CA with a shorter life than ours, for
// example one from an administrator, is renewed in the middle of its life. The clocks of replicas may differ: what one replica writes,
// another one must not undo.
func (ca authority) renewed(now time.Time) (authority, bool, error) {
	changed := false
	if current := ca.current.certificate; !isValid(current, now) {
		if now.Before(current.NotBefore) { // the creator's clock was ahead, or ours is behind and certificates of this CA are in use
			ca.previous = append([]*x509.Certificate{current}, ca.previous...)
		} else { // no replica ran for a year, so none has a valid certificate
			ca.previous = nil
		}
		ca.current, changed = nil, true
		if ca.next != nil && isValid(ca.next.certificate, now) {
			ca.current = ca.next
		}
		ca.next = nil
		if ca.current == nil {
			var err error
			ca.current, err = newSigner(ca.name, now)
			return ca, true, err
		}
	}
	// If a clock was far ahead, the next CA is not valid when it is needed. It has not signed anything.
	if !now.Before(ca.nextDue()) && (ca.next == nil || now.Before(ca.next.certificate.NotBefore)) {
		var err error
		if ca.next, err = newSigner(ca.name, now); err != nil {
			return ca, false, err
		}
		changed = true
	}
	if ca.next != nil && !now.Before(ca.signsFrom()) {
		ca.previous = append([]*x509.Certificate{ca.current.certificate}, ca.previous...)
		ca.current, ca.next, changed = ca.next, nil, true
	}
	kept := slices.DeleteFunc(slices.Clone(ca.previous), func(*x509.Certificate) bool { return !now.Before(ca.previousDue()) })
	if len(kept) != len(ca.previous) {
		ca.previous, changed = kept, true
	}
	return ca, changed, nil
}

// isValid reports whether a certificate has not expired. If a process whose clock was ahead created it, it is not valid yet.
func isValid(c *x509.Certificate, now time.Time) bool {
	return !now.Before(c.NotBefore) && now.Before(c.NotAfter)
}

// made returns the time when the CA was created.
func (s *signer) made() time.Time { return s.certificate.NotBefore.Add(clocksDiffer) }

// nextDue returns the time when the next CA must be created.
func (ca authority) nextDue() time.Time {
	c := ca.current.certificate
	return c.NotAfter.Add(-min(caRenewal, c.NotAfter.Sub(c.NotBefore)/2))
}

// signsFrom returns the time when the next CA starts to sign.
func (ca authority) signsFrom() time.Time {
	at := ca.next.made().Add(caPublished)
	if last := ca.current.certificate.NotAfter; at.After(last) {
		return last
	}
	return at
}

// previousDue returns the time when the previous CAs are removed.
func (ca authority) previousDue() time.Time { return ca.current.made().Add(caPublished + caKept) }

// due returns the time of the next change by renewed. If the clocks of replicas differ, it may be late; maxInterval limits that.
func (ca authority) due() time.Time {
	at := ca.nextDue()
	if ca.next != nil {
		at = ca.signsFrom()
	}
	if len(ca.previous) > 0 && ca.previousDue().Before(at) {
		at = ca.previousDue()
	}
	return at
}

// sign returns a serving certificate for a key and its server's names.
func (ca authority) sign(key *ecdsa.PrivateKey, names serverNames, now time.Time) ([]byte, error) {
	template, err := names.template(now, leafLifetime)
	if err != nil {
		return nil, err
	}
	if last := ca.current.certificate.NotAfter; template.NotAfter.After(last) {
		template.NotAfter = last
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.current.certificate, key.Public(), ca.current.key)
	if err != nil {
		return nil, fmt.Errorf("signing a serving certificate: %w", err)
	}
	return der, nil
}

// signed reports whether a certificate is still valid and not due for renewal, and returns the time of its renewal.
func (ca authority) signed(leaf *x509.Certificate, now time.Time) (due time.Time, ok bool) {
	due = leaf.NotAfter.Add(-min(leafRenewal, leaf.NotAfter.Sub(leaf.NotBefore)/2))
	return due, isValid(leaf, now) && now.Before(due) && leaf.CheckSignatureFrom(ca.current.certificate) == nil
}
