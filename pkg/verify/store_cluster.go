package verify

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"iter"
	"net/http"
	"net/url"
	"strings"

	configv1 "github.com/openshift/api/config/v1"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
)

// Keys under which a ConfigMap in namespace openshift-config holds certificates: the one that the API of ClusterVersion
// names, and the one that bundles for proxies have.
const (
	caKey       = "ca.crt"
	caBundleKey = "ca-bundle.crt"
)

// maxClusterStores is how many stores ClusterVersion admits.
const maxClusterStores = 32

// CAReader returns the data of a ConfigMap in namespace openshift-config.
type CAReader func(ctx context.Context, name string) (map[string]string, error)

// ClusterStores returns the stores of ClusterVersion's spec.signatureStores, which take the place of the policy's: see
// Sources.Exclusive. Nil, as where the field is not set, is no store. An empty list is a search that finds nothing and
// says why, as the field's documentation has it.
//
// A store with a ca trusts the certificates in that ConfigMap and no others; if they cannot be read, the store is not
// asked. (OpenShift's operator leaves out the ca.) The ConfigMap is read at every search, so that it may change.
func ClusterStores(stores []configv1.SignatureStore, client *http.Client, read CAReader) []Store {
	if stores == nil {
		return nil
	}
	if len(stores) == 0 {
		return []Store{refusedStore{name: "spec.signatureStores", err: errors.New("the list is empty, so that only signatures in " +
			"ConfigMaps count: add a store, or remove the field to have those of the release asked")}}
	}
	out := make([]Store, 0, len(stores))
	for i, s := range stores {
		if i == maxClusterStores {
			out = append(out, refusedStore{name: "spec.signatureStores", err: fmt.Errorf("more than %d stores, the rest is not asked", maxClusterStores)})
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
		return refusedStore{name: shown(u), err: errors.New("the URL of a store begins with https:// or http:// and a host")}
	case s.CA.Name == "":
		return newHTTPStore(u, client)
	}
	return &privateStore{base: u, client: client, ca: s.CA.Name, read: read}
}

// refusedStore is a store that cannot be asked.
type refusedStore struct {
	name string
	err  error
}

func (s refusedStore) String() string { return s.name }

func (s refusedStore) Signatures(context.Context, release.Digest) iter.Seq2[Signature, error] {
	return func(yield func(Signature, error) bool) { yield(Signature{}, s.err) }
}

// privateStore is a web server with certificates of its own authority.
type privateStore struct {
	base   *url.URL
	client *http.Client
	ca     string
	read   CAReader
}

func (s *privateStore) String() string { return shown(s.base) }

// Signatures reads the authority's certificates and asks as any other store of its kind.
func (s *privateStore) Signatures(ctx context.Context, digest release.Digest) iter.Seq2[Signature, error] {
	return func(yield func(Signature, error) bool) {
		client, err := s.trusting(ctx)
		if err != nil {
			yield(Signature{}, fmt.Errorf("the store is not asked, because its ca, ConfigMap %s/%s, cannot be used: %w", api.ConfigNamespace, s.ca, err))
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

// trusting returns a client that differs from the given one in the certificates that it trusts.
func (s *privateStore) trusting(ctx context.Context) (*http.Client, error) {
	data, err := s.read(ctx, s.ca)
	if err != nil {
		return nil, err
	}
	bundle, ok := data[caKey]
	if !ok {
		if bundle, ok = data[caBundleKey]; !ok {
			return nil, fmt.Errorf("it has no key %s", caKey)
		}
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(bundle)) {
		return nil, errors.New("it holds no PEM certificate")
	}
	client := http.Client{}
	if s.client != nil {
		client = *s.client
	}
	transport := client.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	t, ok := transport.(*http.Transport)
	if !ok {
		return nil, fmt.Errorf("certificates cannot be given to a %T", transport)
	}
	t = t.Clone()
	if t.TLSClientConfig == nil {
		t.TLSClientConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	t.TLSClientConfig.RootCAs = pool
	client.Transport = t
	return &client, nil
}
