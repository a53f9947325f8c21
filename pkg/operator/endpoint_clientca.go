package operator

import (
	"context"
	"crypto/x509"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/singleflight"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
)

// Where an API server publishes which client certificates it accepts.
const (
	clientCANamespace = metav1.NamespaceSystem
	clientCAName      = "extension-apiserver-authentication"
	clientCAKey       = "client-ca-file"
)

// clientCAEvery is how often the client CA is read at most. It is read for a caller who shows a certificate and else
// never, so that an operator at rest sends nothing.
const clientCAEvery = time.Minute

// clientCA knows which client certificates the cluster accepts.
type clientCA struct {
	clock      clock.PassiveClock
	configMaps interface {
		Get(context.Context, string, metav1.GetOptions) (*corev1.ConfigMap, error)
	}
	reading singleflight.Group

	mu     sync.Mutex
	pool   *x509.CertPool
	readAt time.Time
}

// authenticate returns the user of a certificate that is valid for clients and signed by the client CA.
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
		return nil, &unauthenticatedError{fmt.Sprintf("the cluster's client CA does not vouch for the client certificate: %v", err)}
	}
	user := certificateUser(chain[0])
	if user.Username == "" {
		return nil, &unauthenticatedError{"the client certificate names nobody: its common name is empty"}
	}
	return user, nil
}

// roots returns the client CA, at most clientCAEvery old, or an older one if it cannot be read any more.
func (c *clientCA) roots(ctx context.Context) (*x509.CertPool, error) {
	pool, due := c.current()
	if !due {
		return pool, nil
	}
	reading := c.reading.DoChan(clientCAKey, func() (any, error) {
		if pool, due := c.current(); !due {
			return pool, nil // read while we came here
		}
		// It is for all who wait, whoever of them gives up.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), reviewTimeout)
		defer cancel()
		return c.read(ctx)
	})
	var err error
	select {
	case read := <-reading:
		if fresh, ok := read.Val.(*x509.CertPool); ok && read.Err == nil {
			return fresh, nil
		}
		err = read.Err
	case <-ctx.Done():
		err = ctx.Err()
	}
	if pool != nil {
		return pool, nil
	}
	return nil, fmt.Errorf("reading the cluster's client CA: %w", err)
}

func (c *clientCA) current() (pool *x509.CertPool, due bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.pool, c.pool == nil || c.clock.Since(c.readAt) >= clientCAEvery
}

// read asks the cluster. One that publishes no client CA accepts no client certificate.
func (c *clientCA) read(ctx context.Context) (*x509.CertPool, error) {
	published, err := c.configMaps.Get(ctx, clientCAName, metav1.GetOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return nil, err
	}
	pool := x509.NewCertPool()
	if err == nil {
		pool.AppendCertsFromPEM([]byte(published.Data[clientCAKey]))
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pool, c.readAt = pool, c.clock.Now()
	return pool, nil
}
