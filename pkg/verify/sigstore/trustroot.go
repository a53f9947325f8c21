package sigstore

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/sha256"
	"crypto/x509"
	"encoding/hex"
	"encoding/pem"
	"errors"
	"fmt"
	"slices"
	"time"

	sigstoreroot "github.com/sigstore/sigstore-go/pkg/root"
	sigstoreverify "github.com/sigstore/sigstore-go/pkg/verify"

	"github.com/cluster-version/cvo/pkg/release"
)

const certificatePEM = "CERTIFICATE"

// TrustRoot contains the trusted parts of a sigstore deployment: certificate authorities that issue to signers, transparency logs,
// certificate logs and timestamp authorities. Create it with NewTrustRoot or ParseTrustRoot.
type TrustRoot struct {
	authorities []sigstoreroot.CertificateAuthority
	rekor, ct   map[string]*sigstoreroot.TransparencyLog
	timestamps  []sigstoreroot.TimestampingAuthority
	fingerprint []string
}

// TrustRootOptions are the parts of a trust root, each with one or more PEM blocks. All may be empty.
type TrustRootOptions struct {
	// Roots are certificate authorities. Intermediates are used for signatures without their own chain.
	Roots, Intermediates []byte
	// LogKeys are the public keys of transparency logs (Rekor). If set, every signature must have a log entry.
	LogKeys []byte
	// CertificateLogKeys are the public keys of certificate transparency logs. If set, every certificate must have an embedded timestamp
	// from one of these logs.
	CertificateLogKeys []byte
	// TimestampAuthority is the chain of one timestamp authority, from its own certificate to the root.
	TimestampAuthority []byte
}

// NewTrustRoot creates a trust root from its parts.
func NewTrustRoot(o TrustRootOptions) (TrustRoot, error) {
	var t TrustRoot
	roots, err := parseCertificates("roots", o.Roots)
	if err != nil {
		return TrustRoot{}, err
	}
	intermediates, err := parseCertificates("intermediates", o.Intermediates)
	if err != nil {
		return TrustRoot{}, err
	}
	if len(intermediates) > 0 && len(roots) == 0 {
		return TrustRoot{}, errors.New("there are intermediates but no roots: add the root certificates")
	}
	for _, c := range slices.Concat(roots, intermediates) {
		if !c.IsCA {
			return TrustRoot{}, fmt.Errorf("certificate %q is not a certificate authority: use the authority's certificates as roots and intermediates", c.Subject)
		}
	}
	for _, c := range roots {
		t.authorities = append(t.authorities, &sigstoreroot.FulcioCertificateAuthority{Root: c, Intermediates: intermediates})
		t.fingerprint = append(t.fingerprint, certificateFingerprint(c))
	}
	if t.rekor, err = parseLogKeys("log keys", o.LogKeys); err != nil {
		return TrustRoot{}, err
	}
	for _, log := range t.rekor {
		if _, ok := log.PublicKey.(*ecdsa.PublicKey); !ok {
			return TrustRoot{}, fmt.Errorf("reading log keys: a log that signs with a %T needs a trusted_root.json with its address", log.PublicKey)
		}
	}
	if t.ct, err = parseLogKeys("certificate log keys", o.CertificateLogKeys); err != nil {
		return TrustRoot{}, err
	}
	chain, err := parseCertificates("timestamp authority", o.TimestampAuthority)
	if err != nil {
		return TrustRoot{}, err
	}
	if len(chain) > 0 {
		t.timestamps = append(t.timestamps, timestampAuthority(chain))
	}
	return t, nil
}

// ParseTrustRoot parses a sigstore trusted_root.json.
func ParseTrustRoot(data []byte) (TrustRoot, error) {
	parsed, err := sigstoreroot.NewTrustedRootFromJSON(data)
	if err != nil {
		return TrustRoot{}, fmt.Errorf("reading sigstore trusted root: %w", err)
	}
	t := TrustRoot{
		authorities: parsed.FulcioCertificateAuthorities(), rekor: parsed.RekorLogs(), ct: parsed.CTLogs(),
		timestamps: parsed.TimestampingAuthorities(),
	}
	for _, a := range t.authorities {
		if f, ok := a.(*sigstoreroot.FulcioCertificateAuthority); ok && f.Root != nil {
			t.fingerprint = append(t.fingerprint, certificateFingerprint(f.Root))
		}
	}
	return t, nil
}

func timestampAuthority(chain []*x509.Certificate) *sigstoreroot.SigstoreTimestampingAuthority {
	a := &sigstoreroot.SigstoreTimestampingAuthority{Root: chain[len(chain)-1]}
	for _, c := range chain[:len(chain)-1] {
		if a.Leaf == nil && !c.IsCA {
			a.Leaf = c
		} else {
			a.Intermediates = append(a.Intermediates, c)
		}
	}
	return a
}

func certificateFingerprint(c *x509.Certificate) string {
	sum := sha256.Sum256(c.Raw)
	return hex.EncodeToString(sum[:])
}

func parsePEM(what, blockType string, data []byte, use func(der []byte) error) error {
	for rest := data; len(rest) > 0; {
		block, next := pem.Decode(rest)
		if block == nil {
			if len(next) == len(data) {
				return fmt.Errorf("reading %s: it contains no PEM block: expected -----BEGIN %s-----", what, blockType)
			}
			return nil
		}
		if block.Type != blockType {
			return fmt.Errorf("reading %s: it contains a PEM %s, expected a %s", what, block.Type, blockType)
		}
		if err := use(block.Bytes); err != nil {
			return fmt.Errorf("reading %s: %w", what, err)
		}
		rest = next
	}
	return nil
}

func parseCertificates(what string, data []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	err := parsePEM(what, certificatePEM, data, func(der []byte) error {
		c, err := x509.ParseCertificate(der)
		if err == nil {
			err = strongKey(c.PublicKey)
		}
		out = append(out, c)
		return err
	})
	return out, err
}

// parseLogKeys returns logs by ID, which is the hash of their key (RFC 6962, section 3.2).
func parseLogKeys(what string, data []byte) (map[string]*sigstoreroot.TransparencyLog, error) {
	out := map[string]*sigstoreroot.TransparencyLog{}
	err := parsePEM(what, publicKeyPEM, data, func(der []byte) error {
		k, err := parsePKIX(der)
		if err != nil {
			return err
		}
		id, err := hex.DecodeString(k.fingerprint)
		out[k.fingerprint] = &sigstoreroot.TransparencyLog{
			ID: id, HashFunc: crypto.SHA256, SignatureHashFunc: crypto.SHA256, PublicKey: k.key,
			// The library requires a start of validity, but a bare key has none.
			ValidityPeriodStart: time.Unix(0, 0),
		}
		return err
	})
	return out, err
}

// material is a trust root as the library's type, plus one key for signatures by bare keys.
type material struct {
	*TrustRoot
	*sigstoreroot.TrustedPublicKeyMaterial
}

func (m material) TimestampingAuthorities() []sigstoreroot.TimestampingAuthority { return m.timestamps }

func (m material) FulcioCertificateAuthorities() []sigstoreroot.CertificateAuthority {
	return m.authorities
}
func (m material) RekorLogs() map[string]*sigstoreroot.TransparencyLog { return m.rekor }
func (m material) CTLogs() map[string]*sigstoreroot.TransparencyLog    { return m.ct }

// HasTimeSource reports whether the trust root has a source of the signing time.
func (t *TrustRoot) HasTimeSource() bool { return len(t.rekor)+len(t.timestamps) > 0 }

// observed is the evidence of third parties about a signature.
type observed struct {
	times []time.Time
	entry *release.LogEntry
}

// observe checks the timestamps of a signature and, if the trust root has logs, its entry in a transparency log. It returns the times at
// which trusted third parties saw the signature. A log entry without a promise has no time.
func (t *TrustRoot) observe(s *Signature, key crypto.PublicKey) (observed, error) {
	var o observed
	m := material{TrustRoot: t, TrustedPublicKeyMaterial: keyOnly(key, s.document != nil)}
	if len(t.rekor) > 0 {
		times, err := sigstoreverify.VerifyTlogEntry(s, m, 1, true)
		if err != nil {
			return observed{}, fmt.Errorf("no entry in a trusted transparency log: %w", err)
		}
		for _, v := range times {
			o.times = append(o.times, v.Time.UTC())
		}
		o.entry = t.logEntry(s, o.times)
	}
	if len(t.timestamps) > 0 {
		times, failures, err := sigstoreverify.VerifySignedTimestamp(s, m)
		if err != nil {
			return observed{}, fmt.Errorf("checking timestamps: %w", err)
		}
		for _, v := range times {
			o.times = append(o.times, v.Time.UTC())
		}
		if len(t.rekor) == 0 && len(times) == 0 {
			return observed{}, fmt.Errorf("no timestamp of a trusted authority: %w", errors.Join(append(failures, errNoTimestamp)...))
		}
	}
	return o, nil
}

var errNoTimestamp = errors.New("at least one is required")

// logEntry returns the verified log entry: the entry in a trusted log that confirms the signature's time.
func (t *TrustRoot) logEntry(s *Signature, times []time.Time) *release.LogEntry {
	entries, err := s.TlogEntries()
	if err != nil {
		return nil
	}
	for _, e := range entries {
		if _, trusted := t.rekor[hex.EncodeToString([]byte(e.LogKeyID()))]; !trusted {
			continue
		}
		if at := e.IntegratedTime().UTC(); slices.ContainsFunc(times, at.Equal) {
			return &release.LogEntry{Index: e.LogIndex(), Time: at}
		}
		if len(times) == 0 {
			return &release.LogEntry{Index: e.LogIndex()}
		}
	}
	return nil
}
