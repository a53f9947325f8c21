// Package store reads stores of OpenPGP signatures: web servers and folders in OpenShift's layout, and ConfigMaps in a cluster. Its inputs
// are the address of a store and a digest. It returns the digest's signed messages, unverified and one at a time. Package openpgp verifies
// them. Callers choose the stores and their order.
package store

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/cluster-version/cvo/pkg/release"
)

// Signature is one OpenPGP signature in a store.
type Signature struct {
	// Name identifies the signature among those of the same digest, such as "signature-1".
	Name string
	// Location is the full address of the signature.
	Location string
	// Message is an OpenPGP signed message, unverified.
	Message []byte
}

// Store contains OpenPGP signatures by digest.
type Store interface {
	// Signatures yields the digest's signatures in the store's order. It fetches each one only when the caller needs it. For a signature
	// that cannot be fetched, it yields an error and continues. A store without signatures yields nothing.
	Signatures(ctx context.Context, digest release.Digest) iter.Seq2[Signature, error]
	// String describes the store in messages.
	String() string
}

// firstSignature and lastSignature are the lowest and highest number of a signature in a store (OpenShift's layout:
// <store>/<algorithm>=<hash>/signature-<n>).
const (
	firstSignature = 1
	lastSignature  = 9
)

// Open returns the store for a URL in a policy: a web server (http or https), which is accessed with client (http.DefaultClient if nil), or
// a folder (file:///path).
func Open(rawURL string, client *http.Client) (Store, error) {
	u, err := url.Parse(strings.TrimSpace(rawURL))
	if err != nil {
		return nil, fmt.Errorf("reading signature store %q: %w", rawURL, err)
	}
	switch u.Scheme {
	case "http", "https":
		if u.Host == "" {
			return nil, fmt.Errorf("signature store %q has no host", rawURL)
		}
		return newHTTPStore(u, client), nil
	case "file":
		if u.Host != "" && u.Host != "localhost" || !strings.HasPrefix(u.Path, "/") {
			return nil, fmt.Errorf("signature store %q is not an absolute path: write file:///path/to/signatures", rawURL)
		}
		return NewFolder(u.Path), nil
	}
	return nil, fmt.Errorf("signature store %q has scheme %q: use http, https or file", rawURL, u.Scheme)
}

// Path returns the path of the n-th signature of a digest, relative to the store.
func Path(digest release.Digest, n int) string {
	return fmt.Sprintf("%s/%s", Dir(digest), signatureName(n))
}

// Dir returns the folder of a digest's signatures, relative to the store.
func Dir(digest release.Digest) string { return "sha256=" + digest.Hex() }

func signatureName(n int) string { return fmt.Sprintf("signature-%d", n) }

// SignatureError is the reason why one signature could not be read.
type SignatureError struct {
	// Name is the name of the signature in its store.
	Name string
	Err  error
}

func (e *SignatureError) Error() string { return e.Name + ": " + e.Err.Error() }
func (e *SignatureError) Unwrap() error { return e.Err }
