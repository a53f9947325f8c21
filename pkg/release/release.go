// Package release holds the nouns that all stages share: a release and its version, digests, resolved images, the
// evidence of who signed them, and the mode a rollout runs in. Values only; nothing here does I/O.
package release

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// Mode says what a rollout is for; it decides the edges of the task graph and how strict the gates are.
type Mode string

const (
	// Initializing is the first install: only the order that objects imply, gates tolerant.
	Initializing Mode = "Initializing"
	// Updating moves from one release to another: ordered by runlevel, every gate strict.
	Updating Mode = "Updating"
	// Reconciling keeps a completed release as it is: flat, drift repair only.
	Reconciling Mode = "Reconciling"
)

// Modes lists every mode, in the order a cluster passes through them.
func Modes() []Mode { return []Mode{Initializing, Updating, Reconciling} }

// ParseMode reads a mode's name, in any case.
func ParseMode(s string) (Mode, error) {
	for _, m := range Modes() {
		if strings.EqualFold(s, string(m)) {
			return m, nil
		}
	}
	return "", fmt.Errorf("unknown mode %q: use initializing, updating or reconciling", s)
}

// Digest is a content address, "sha256:" and 64 lower-case hex digits (OCI image specification, descriptor digests).
type Digest string

var digestPattern = regexp.MustCompile(`^sha256:[a-f0-9]{64}$`)

// ParseDigest accepts only sha256 digests, the one algorithm that registries and signatures of releases use.
func ParseDigest(s string) (Digest, error) {
	if !digestPattern.MatchString(s) {
		return "", fmt.Errorf("digest %q is not sha256:<64 hex digits>", s)
	}
	return Digest(s), nil
}

// Hex is the digest without its algorithm.
func (d Digest) Hex() string { return strings.TrimPrefix(string(d), "sha256:") }

// Image is a pullspec resolved to the digest that everything after resolving refers to.
type Image struct {
	// Pullspec is what the user wrote.
	Pullspec string
	// Digest is what the registry answered: of the index if the pullspec names an index.
	Digest Digest
}

// Repository is the pullspec without tag and digest, such as "registry.example:5000/platform/release".
func (i Image) Repository() string {
	s, _, _ := strings.Cut(i.Pullspec, "@")
	if slash, colon := strings.LastIndex(s, "/"), strings.LastIndex(s, ":"); colon > slash {
		s = s[:colon]
	}
	return s
}

// ByDigest is the pullspec that names this content and nothing else.
func (i Image) ByDigest() string { return i.Repository() + "@" + string(i.Digest) }

// SameImage reports whether two pullspecs are of one image: by their digests if both have one, wherever it is pulled from.
func SameImage(a, b string) bool {
	_, digestA, okA := strings.Cut(a, "@")
	_, digestB, okB := strings.Cut(b, "@")
	if okA && okB {
		return digestA == digestB
	}
	return a == b
}

// Evidence answers for one accepted signature: who signed the digest, with which key, found where.
type Evidence struct {
	// Root names the root of trust that was satisfied: a keyring of the trust configuration, a public key, a policy.
	Root string `json:"root"`
	// Threshold names the group of roots for which this one counted; empty if the root must be satisfied by itself.
	Threshold string `json:"threshold,omitempty"`
	// Method is "openpgp" or "sigstore".
	Method string `json:"method"`
	// Identity is the signer as the key tells it: an OpenPGP user id, the subject of a certificate (an email address,
	// a URI, a host name); may be empty.
	Identity string `json:"identity,omitempty"`
	// Issuer is who vouched for the identity to the certificate authority: the OpenID Connect issuer of a keyless
	// signature.
	Issuer string `json:"issuer,omitempty"`
	// KeyID is the long OpenPGP key id in hex, or the SHA-256 fingerprint of a public key.
	KeyID string `json:"keyID"`
	// Fingerprint is that of the signer's primary OpenPGP key, in hex.
	Fingerprint string `json:"fingerprint,omitempty"`
	// Algorithm is how the signature was made, such as "RSA-4096/SHA-256"; empty if the method fixes it by the key.
	Algorithm string `json:"algorithm,omitempty"`
	// Certificate is the SHA-256 fingerprint of the certificate that was used, in hex; empty for bare keys.
	Certificate string `json:"certificate,omitempty"`
	// Store is where the signature was found: a URL, a ConfigMap, an image reference.
	Store string `json:"store"`
	// Message is the OpenPGP message that was accepted, for whoever keeps it; it is no part of what is printed.
	Message []byte `json:"-"`
	// SignedAt is when the signature was made: by the log's or the timestamp authority's word if there is one,
	// otherwise by the signature's own; zero if nothing says it.
	SignedAt time.Time `json:"signedAt,omitzero"`
	// Log is the entry of a transparency log that was checked.
	Log *LogEntry `json:"log,omitempty"`
}

// LogEntry is a signature's entry in a transparency log.
type LogEntry struct {
	// Index is the position in the log.
	Index int64 `json:"index"`
	// Time is when the log says that it took the entry; zero if it does not promise one.
	Time time.Time `json:"time,omitzero"`
}

// Verified is an image whose digest somebody trusted has signed, or that was forced past verification.
type Verified struct {
	Image
	// Evidence is empty exactly if Forced is set.
	Evidence []Evidence
	// Forced is the verification failure that was forced past, nil for a verified image.
	Forced error
}

// Attachment is a signature that a registry keeps beside an image (a "sha256-<digest>.sig" tag or an OCI referrer).
type Attachment struct {
	// Store is the image reference under which it was found.
	Store string
	// MediaType is that of the payload: a simple signing document or a sigstore bundle.
	MediaType string
	// Payload is the signed document (or the bundle).
	Payload []byte
	// Annotations are those of the layer descriptor; "dev.cosignproject.cosign/signature" holds the signature.
	Annotations map[string]string
}

// Release is what a payload says of itself.
type Release struct {
	// Version is strict SemVer.
	Version string `json:"version"`
	// Image is the pullspec it was loaded from, by digest.
	Image string `json:"image"`
	// URL leads to the release notes; may be empty.
	URL string `json:"url,omitempty"`
	// Channels that the release's metadata lists, sorted.
	Channels []string `json:"channels,omitempty"`
	// Architecture is "Multi" or empty.
	Architecture string `json:"architecture,omitempty"`
	// Prune: objects of earlier releases that this one names no more are deleted once it is complete.
	Prune bool `json:"prune,omitempty"`
	// Kubernetes is the range of API server versions that it is made for, in the words of its metadata, which may be no
	// range at all; see ParseKubernetesRange. Empty for any.
	Kubernetes string `json:"kubernetes,omitempty"`
}
