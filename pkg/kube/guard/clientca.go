package guard

import (
	"cmp"
	"context"
	"crypto/x509"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/internal/memo"
)

// The ConfigMap in which an API server publishes its CA for client certificates.
const (
	clientCANamespace = metav1.NamespaceSystem
	clientCAName      = "extension-apiserver-authentication"
	clientCAKey       = "client-ca-file"
)

// clientCAEvery is the minimum time between two reads of the client CA. It is read only for a caller with a certificate, so an idle
// operator sends no requests.
const clientCAEvery = time.Minute

// clientCA verifies client certificates with the cluster's client CA.
type clientCA struct {
	clock      clock.PassiveClock
	configMaps interface {
		Get(context.Context, string, metav1.GetOptions) (*corev1.ConfigMap, error)
	}
	last memo.Last[published]
}

// published is the last client CA that was read.
type published struct {
	pool   *x509.CertPool
	readAt time.Time
	err    error // reading it again failed
}

// authenticate returns the user of a client certificate that the client CA has signed.
func (c *clientCA) authenticate(ctx context.Context, chain []*x509.Certificate) (*authenticationv1.UserInfo, error) {
	roots, err := c.roots(ctx)
	if err != nil {
		return nil, err
	}
	intermediates := x509.NewCertPool()
	for _, more := range chain[1:] {
		intermediates.AddCert(more)
	}
	_, err = chain[0].Verify(x509.VerifyOptions{
		Roots: roots, Intermediates: intermediates, CurrentTime: c.clock.Now(),
		KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return nil, &unauthenticatedError{fmt.Sprintf("the client certificate is not signed by the cluster's client CA: %v", err)}
	}
	user := certificateUser(chain[0])
	if user.Username == "" {
		return nil, &unauthenticatedError{"the client certificate contains no user: its common name is empty"}
	}
	return user, nil
}

// roots returns the client CA. It is at most clientCAEvery old, or older if it cannot be read again.
func (c *clientCA) roots(ctx context.Context) (*x509.CertPool, error) {
	due := func(last published) bool { return last.pool == nil || c.clock.Since(last.readAt) >= clientCAEvery }
	last, err := c.last.Read(ctx, reviewTimeout, due, c.read)
	if last.pool != nil {
		return last.pool, nil
	}
	return nil, fmt.Errorf("reading the cluster's client CA: %w", cmp.Or(err, last.err))
}

// read reads the client CA from the cluster. A cluster without one accepts no client certificates.
func (c *clientCA) read(ctx context.Context, last published) published {
	found, err := c.configMaps.Get(ctx, clientCAName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		last.err = err
		return last
	}
	pool := x509.NewCertPool()
	if err == nil {
		pool.AppendCertsFromPEM([]byte(found.Data[clientCAKey]))
	}
	return published{pool: pool, readAt: c.clock.Now()}
}
