package store

import (
	"context"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/oci/registry/redirect"
	"github.com/cluster-version/cvo/pkg/release"
)

// Keys for certificates in a ConfigMap in namespace openshift-config: the key that the API of ClusterVersion documents, and the key for
// proxies' CA bundles.
const (
	caKey       = "ca.crt"
	caBundleKey = "ca-bundle.crt"
)

// maxClusterStores is the maximum number of stores in a ClusterVersion.
const maxClusterStores = 32

// CAReader returns the data of a ConfigMap in namespace openshift-config.
type CAReader func(ctx context.Context, name string) (map[string]string, error)

// ForCluster returns the stores of ClusterVersion's spec.signatureStores, which replace the stores of the trust policy. If the field is
// unset (nil), it returns none. If the list is empty, it returns a store that finds nothing and reports the reason, as the field's
// documentation requires.
//
// A store with a ca trusts only the certificates in that ConfigMap. If they cannot be read, the store is not searched. (OpenShift's
// operator ignores the ca.) Every search reads the ConfigMap, so it may change.
func ForCluster(stores []configv1.SignatureStore, client *http.Client, read CAReader) []Store {
	if stores == nil {
		return nil
	}
	if len(stores) == 0 {
		return []Store{refusedStore{name: "spec.signatureStores", err: errors.New("the list is empty, so only signatures in " +
			"ConfigMaps count: add a store, or remove the field to use the stores of the release")}}
	}
	out := make([]Store, 0, len(stores))
	for i, s := range stores {
		if i == maxClusterStores {
			out = append(out, refusedStore{name: "spec.signatureStores", err: fmt.Errorf("more than %d stores, the rest is ignored", maxClusterStores)})
			break
		}
		out = append(out, clusterStore(s, client, read))
	}
	return out
}

func clusterStore(s configv1.SignatureStore, client *http.Client, read CAReader) Store {
	u, err := url.Parse(strings.TrimSpace(s.URL))
	switch {
	case err != nil:
		return refusedStore{name: "spec.signatureStores", err: fmt.Errorf("reading the URL %q: %w", s.URL, err)}
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return refusedStore{name: redacted(u), err: errors.New("the URL of a store must begin with https:// or http:// and a host")}
	case s.CA.Name == "":
		return newHTTPStore(u, client)
	}
	return &privateStore{base: u, client: client, ca: s.CA.Name, read: read}
}

// refusedStore is a store that cannot be searched. It only reports the reason.
type refusedStore struct {
	name string
	err  error
}

func (s refusedStore) String() string { return s.name }

func (s refusedStore) Signatures(context.Context, release.Digest) iter.Seq2[Signature, error] {
	return func(yield func(Signature, error) bool) { yield(Signature{}, s.err) }
}

// privateStore is a store on a web server whose certificate is from a private authority.
type privateStore struct {
	base   *url.URL
	client *http.Client
	ca     string
	read   CAReader
}

func (s *privateStore) String() string { return redacted(s.base) }

// Signatures reads the authority's certificates and then searches as in any store on a web server.
func (s *privateStore) Signatures(ctx context.Context, digest release.Digest) iter.Seq2[Signature, error] {
	return func(yield func(Signature, error) bool) {
		client, err := s.trusting(ctx)
		if err != nil {
			yield(Signature{}, fmt.Errorf("the store was not searched, because its ca in ConfigMap %s/%s cannot be used: %w", api.ConfigNamespace, s.ca, err))
			return
		}
		defer client.CloseIdleConnections()
		for sig, err := range newHTTPStore(s.base, client).Signatures(ctx, digest) {
			if !yield(sig, err) {
				return
			}
		}
	}
}

// trusting returns a copy of the client that trusts only these certificates.
func (s *privateStore) trusting(ctx context.Context) (*http.Client, error) {
	data, err := s.read(ctx, s.ca)
	if err != nil {
		return nil, err
	}
	bundle, ok := data[caKey]
	if !ok {
		if bundle, ok = data[caBundleKey]; !ok {
			return nil, fmt.Errorf("it has neither key %s nor key %s", caKey, caBundleKey)
		}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(bundle)) {
		return nil, errors.New("it contains no PEM certificate")
	}
	return redirect.WithAuthorities(s.client, pool)
}
