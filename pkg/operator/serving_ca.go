package operator

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

// Lifetimes of the operator's own CA. At any time there is a year to notice that it is not renewed any more.
const (
	// caLifetime is how long an authority is valid, and caRenewal what is left of it when the next one is made.
	caLifetime, caRenewal = 2 * 365 * 24 * time.Hour, 365 * 24 * time.Hour
	// caPublished is how long the next authority is in the bundle before it signs: clients read the bundle now and then.
	caPublished = 24 * time.Hour
	// leafLifetime is how long a serving certificate is valid, and leafRenewal what is left of it when it is signed anew.
	leafLifetime, leafRenewal = 30 * 24 * time.Hour, 15 * 24 * time.Hour
	// caKept is how long an authority stays in the bundle after the next one began to sign. Whatever it signed has
	// expired by then, also where a replica learned late that it should not sign any more.
	caKept = 2 * leafLifetime
)

// The keys of the Secret that holds the operator's CA, beside those of its type.
const (
	caNextCertKey, caNextKeyKey = "next.crt", "next.key"
	caPreviousCertKey           = "previous.crt"
)

// maxCAData bounds what is read of the Secret: it holds some kilobytes.
const maxCAData = 64 << 10

// servingCA is the authority that signs the serving certificates of all replicas. It is a value: what changes it
// returns another one.
type servingCA struct {
	// current signs. next will, and is nil unless its time is near.
	current, next *signer
	// previous signed what may still be served.
	previous []*x509.Certificate
}

// signer is an authority with its key.
type signer struct {
	certificate *x509.Certificate
	key         *ecdsa.PrivateKey
}

func newSigner(now time.Time) (*signer, error) {
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
		// A name of its own for each: where two share one, clients try the wrong key.
		Subject:               pkix.Name{CommonName: fmt.Sprintf("%s-serving-ca@%d", servingName, now.Unix())},
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
		return nil, fmt.Errorf("making a CA for serving: %w", err)
	}
	certificate, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("making a CA for serving: %w", err)
	}
	return &signer{certificate, key}, nil
}

// newServingCA makes the first authority.
func newServingCA(now time.Time) (servingCA, error) {
	current, err := newSigner(now)
	return servingCA{current: current}, err
}

// parseServingCA reads the data of the Secret.
func parseServingCA(data map[string][]byte) (servingCA, error) {
	size := 0
	for _, value := range data {
		size += len(value)
	}
	if size > maxCAData {
		return servingCA{}, fmt.Errorf("%d bytes are too many for a CA", size)
	}
	current, err := parseSigner(data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey])
	if err != nil {
		return servingCA{}, fmt.Errorf("reading %s and %s: %w", corev1.TLSCertKey, corev1.TLSPrivateKeyKey, err)
	}
	ca := servingCA{current: current}
	if len(data[caNextCertKey]) > 0 {
		if ca.next, err = parseSigner(data[caNextCertKey], data[caNextKeyKey]); err != nil {
			return servingCA{}, fmt.Errorf("reading %s and %s: %w", caNextCertKey, caNextKeyKey, err)
		}
	}
	if ca.previous, err = parseCertificates(data[caPreviousCertKey]); err != nil {
		return servingCA{}, fmt.Errorf("reading %s: %w", caPreviousCertKey, err)
	}
	return ca, nil
}

func parseSigner(certificate, key []byte) (*signer, error) {
	certificates, err := parseCertificates(certificate)
	if err != nil {
		return nil, err
	}
	if len(certificates) != 1 || !certificates[0].IsCA || !certificates[0].BasicConstraintsValid {
		return nil, errors.New("one certificate of an authority is wanted")
	}
	block, _ := pem.Decode(key)
	if block == nil {
		return nil, errors.New("the key is not in PEM")
	}
	parsed, err := x509.ParsePKCS8PrivateKey(block.Bytes)
	if err != nil {
		return nil, errors.New("the key is not in PKCS #8") // the error may quote from it
	}
	private, ok := parsed.(*ecdsa.PrivateKey)
	if !ok || !private.PublicKey.Equal(certificates[0].PublicKey) {
		return nil, errors.New("the key is not the one of the certificate")
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

// data is what the Secret holds.
func (ca servingCA) data() (map[string][]byte, error) {
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

// bundle has everyone who may have signed what is served, now or soon.
func (ca servingCA) bundle() string {
	certificates := []*x509.Certificate{ca.current.certificate}
	if ca.next != nil {
		certificates = append(certificates, ca.next.certificate)
	}
	return string(encodeCertificates(append(certificates, ca.previous...)...))
}

// renewed is the authority as it should be now, and whether that is another one than it was. An authority that lives
// shorter than ours, such as one that an administrator put there, is renewed in the middle of its life.
func (ca servingCA) renewed(now time.Time) (servingCA, bool, error) {
	changed := false
	if !now.Before(ca.current.certificate.NotAfter) { // everybody was away for a year; nothing that it signed is valid
		ca.current, changed = nil, true
		if ca.next != nil && now.Before(ca.next.certificate.NotAfter) {
			ca.current = ca.next
		}
		ca.next, ca.previous = nil, nil
		if ca.current == nil {
			var err error
			ca.current, err = newSigner(now)
			return ca, true, err
		}
	}
	if ca.next == nil && !now.Before(ca.nextDue()) {
		var err error
		if ca.next, err = newSigner(now); err != nil {
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

// made is when an authority was made.
func (s *signer) made() time.Time { return s.certificate.NotBefore.Add(clocksDiffer) }

// nextDue is when the next authority has to be made.
func (ca servingCA) nextDue() time.Time {
	c := ca.current.certificate
	return c.NotAfter.Add(-min(caRenewal, c.NotAfter.Sub(c.NotBefore)/2))
}

// signsFrom is when the next authority begins to sign.
func (ca servingCA) signsFrom() time.Time {
	at := ca.next.made().Add(caPublished)
	if last := ca.current.certificate.NotAfter; at.After(last) {
		return last
	}
	return at
}

// previousDue is when those go that signed before.
func (ca servingCA) previousDue() time.Time { return ca.current.made().Add(caPublished + caKept) }

// due is when renewed has something to do again.
func (ca servingCA) due() time.Time {
	at := ca.nextDue()
	if ca.next != nil {
		at = ca.signsFrom()
	}
	if len(ca.previous) > 0 && ca.previousDue().Before(at) {
		at = ca.previousDue()
	}
	return at
}

// sign returns a certificate for a key and the names of its server.
func (ca servingCA) sign(key *ecdsa.PrivateKey, names serverNames, now time.Time) ([]byte, error) {
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

// signed reports whether a certificate is one that sign would not have to make again, and when it has to.
func (ca servingCA) signed(leaf *x509.Certificate, now time.Time) (due time.Time, ok bool) {
	due = leaf.NotAfter.Add(-min(leafRenewal, leaf.NotAfter.Sub(leaf.NotBefore)/2))
	return due, now.Before(due) && leaf.CheckSignatureFrom(ca.current.certificate) == nil
}
