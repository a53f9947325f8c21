// Package release defines the values that all stages share: a release and its version, digests, resolved images, evidence of signatures,
// and the mode of a rollout. It does no I/O.
package release

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Mode is the purpose of a rollout. It decides the edges of the task graph and how strict the gates are.
type Mode string

const (
	// Initializing is the first install. It orders objects only as they require, and its gates are tolerant.
	Initializing Mode = "Initializing"
	// Updating is the change from one release to another. It orders objects by runlevel, and its gates are strict.
	Updating Mode = "Updating"
	// Reconciling is the maintenance of a completed release. It repairs drift in any order.
	Reconciling Mode = "Reconciling"
)

// Modes returns all modes, in the order in which a cluster passes through them.
func Modes() []Mode { return []Mode{Initializing, Updating, Reconciling} }

// ParseMode parses the name of a mode, ignoring case.
func ParseMode(s string) (Mode, error) {
	for _, m := range Modes() {
		if strings.EqualFold(s, string(m)) {
			return m, nil
		}
	}
	return "", fmt.Errorf("unknown mode %q: use initializing, updating or reconciling", s)
}

// Digest is a content address: "sha256:" and 64 lower-case hex digits (OCI image specification, descriptor digests).
type Digest string

var digestPattern = regexp.MustCompile(`^sha256:[a-f0-9]{64}$`)

// ParseDigest parses a digest. It accepts only sha256, which all registries and release signatures use.
func ParseDigest(s string) (Digest, error) {
	if !digestPattern.MatchString(s) {
		return "", fmt.Errorf("digest %q is not sha256:<64 hex digits>", s)
	}
	return Digest(s), nil
}

// Hex returns the digest without its algorithm.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), "sha256:") }

// Image is a pullspec with its resolved digest. All later steps use the digest.
type Image struct {
	// Pullspec is the pullspec as the user wrote it.
	Pullspec string
	// Digest is the resolved digest. If the pullspec names an index, it is the digest of the index.
	Digest Digest
}

// Repository returns the pullspec without tag and digest, such as "registry.example:5000/platform/release".
func (i Image) Repository() string { return Pullspec(i.Pullspec).Repository() }

// ByDigest returns the pullspec by digest, which identifies exactly this content.
func (i Image) ByDigest() string { return string(Pullspec(i.Pullspec).WithDigest(i.Digest)) }

// Evidence describes one accepted signature: the signer, the key and the place of the signature.
type Evidence struct {
	// Root names the root of trust that accepted the signature: a keyring of the trust configuration, a public key or a policy.
	Root string `json:"root"`
	// Threshold names the group of roots that this root counts toward; empty if the root is required on its own.
	Threshold string `json:"threshold,omitempty"`
	// Method is "openpgp" or "sigstore".
	Method string `json:"method"`
	// Identity is the signer as named by the key: an OpenPGP user ID or the subject of a certificate (an email address, a URI or a host
	// name). It may be empty.
	Identity string `json:"identity,omitempty"`
	// Issuer is the OpenID Connect issuer that vouched for the identity of a keyless signature. It is empty for other signatures.
	Issuer string `json:"issuer,omitempty"`
	// KeyID is the long OpenPGP key ID in hex, or the SHA-256 fingerprint of a public key.
	KeyID string `json:"keyID"`
	// Fingerprint is the fingerprint of the signer's primary OpenPGP key, in hex.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Algorithm is the signature algorithm, such as "RSA-4096/SHA-256"; empty if the key and the method imply it.
	Algorithm string `json:"algorithm,omitempty"`
	// Certificate is the SHA-256 fingerprint of the certificate, in hex; empty for bare keys.
	Certificate string `json:"certificate,omitempty"`
	// Store is the location of the signature: a URL, a ConfigMap or an image reference.
	Store string `json:"store"`
	// Message is the accepted OpenPGP message. It is kept to be stored, not printed.
	Message []byte `json:"-"`
	// SignedAt is the time of the signature: from the log or the timestamp authority if there is one, otherwise from the signature itself.
	// It is zero if unknown.
	SignedAt time.Time `json:"signedAt,omitzero"`
	// Log is the verified entry of a transparency log; nil if there is none.
	Log *LogEntry `json:"log,omitempty"`
}

// LogEntry is a signature's entry in a transparency log.
type LogEntry struct {
	// Index is the position in the log.
	Index int64 `json:"index"`
	// Time is when the log accepted the entry; zero if the log does not promise a time.
	Time time.Time `json:"time,omitzero"`
}

// Verified is an image whose digest is signed by a trusted key, or whose failed verification was overridden by force.
type Verified struct {
	Image
	// Evidence is empty if and only if Forced is set.
	Evidence []Evidence
	// Forced is the verification failure that force overrode; nil for a verified image.
	Forced error
}

// Attachment is a signature stored next to an image in a registry (a "sha256-<digest>.sig" tag or an OCI referrer).
type Attachment struct {
	// Store is the image reference of the signature.
	Store string
	// MediaType is the type of the payload: a simple signing document or a sigstore bundle.
	MediaType string
	// Payload is the signed document (or the bundle).
	Payload []byte
	// Annotations are the annotations of the layer descriptor; "dev.cosignproject.cosign/signature" is the signature.
	Annotations map[string]string
}

// Limits in bytes of a version, and of any other text about a release: an address, a list of channels, the message of a risk. A ClusterVersion
// holds the texts of 100 earlier releases and of all available updates, and the API server rejects objects of more than 1.5 MiB.
const (
	MaxVersion = 256
	MaxText    = 8 << 10
)

// Release describes a release, based on its payload's metadata.
type Release struct {
	// Version is a strict semantic version.
	Version string `json:"version"`
	// Image is the pullspec of the payload, by digest.
	Image string `json:"image"`
	// URL is the address of the release notes; may be empty.
	URL string `json:"url,omitempty"`
	// Channels are the channels in the release's metadata, sorted.
	Channels []string `json:"channels,omitempty"`
	// Architecture is "Multi" or empty.
	Architecture string `json:"architecture,omitempty"`
	// Prune requests that objects of earlier releases without a manifest in this one are deleted once it is complete.
	Prune bool `json:"prune,omitempty"`
	// Kubernetes is the supported range of API server versions as written in the metadata; empty for any version. It may be malformed; see
	// ParseKubernetesRange.
	Kubernetes string `json:"kubernetes,omitempty"`
}
