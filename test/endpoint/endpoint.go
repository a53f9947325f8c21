// Package endpoint reads the endpoint of a leading operator whose address a test knows.
package endpoint

import (
	"context"
	"fmt"
	"io"

	"k8s.io/client-go/rest"

	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/kube/serve"
)

// Connect returns a client for the replica that leads according to its Lease and listens at server. It fails if no replica leads, or if the
// Lease does not have the fingerprint of the certificate.
func Connect(ctx context.Context, cfg *rest.Config, namespace, name, server string) (*serve.Client, error) {
	leading, err := leader.Find(ctx, cfg, namespace, name)
	if err != nil {
		return nil, err
	}
	if leading.Gone {
		return nil, fmt.Errorf("no operator leads: Lease %s/%s has no holder", namespace, name)
	}
	return serve.NewClient(cfg, server, serve.Trust{Fingerprint: leading.Fingerprint}, nil)
}

// Metrics returns a replica's metrics in Prometheus's text format.
func Metrics(ctx context.Context, c *serve.Client) ([]byte, error) {
	resp, err := c.Get(ctx, serve.MetricsPath, "")
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return io.ReadAll(resp.Body)
}
