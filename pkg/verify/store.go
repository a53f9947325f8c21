package verify

import (
	"context"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"

	"github.com/cluster-version/cvo/pkg/release"
)

// Signature is one OpenPGP signature as a store holds it.
type Signature struct {
	// Name tells it from the others of the same digest, such as "signature-1".
	Name string
	// Location is its whole address.
	Location string
	// Message is an OpenPGP signed message, unchecked.
	Message []byte
}

// Store keeps OpenPGP signatures by digest.
type Store interface {
	// Signatures yields the digest's signatures in the store's order, each fetched only when asked for. A signature
	// that cannot be fetched is yielded as an error; the search goes on after it. A store without any yields nothing.
	Signatures(ctx context.Context, digest release.Digest) iter.Seq2[Signature, error]
	// String names the store in messages.
	String() string
}

// firstSignature and lastSignature bound the numbers of signatures in a store (OpenShift's layout:
// <store>/<algorithm>=<hash>/signature-<n>).
const (
	firstSignature = 1
	lastSignature  = 9
)

// OpenStore returns the store that a policy names by URL: http and https through the client (nil means
// http.DefaultClient), or a folder as file:///path.
func OpenStore(rawURL string, client *http.Client) (Store, error) {
	u, err := url.Parse(strings.TrimSpace(rawURL))
	if err != nil {
		return nil, fmt.Errorf("reading signature store %q: %w", rawURL, err)
	}
	switch u.Scheme {
	case "http", "https":
		if u.Host == "" {
			return nil, fmt.Errorf("signature store %q names no host", rawURL)
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

// StorePath is where a store keeps the n-th signature of a digest, relative to the store.
func StorePath(digest release.Digest, n int) string {
	return fmt.Sprintf("%s/%s", StoreDir(digest), signatureName(n))
}

// StoreDir is the folder of a digest's signatures, relative to the store.
func StoreDir(digest release.Digest) string { return "sha256=" + digest.Hex() }

func signatureName(n int) string { return fmt.Sprintf("signature-%d", n) }
