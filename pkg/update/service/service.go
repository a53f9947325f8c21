// Package service sends queries to the update service with a cluster's configuration: its proxy and trusted certificates. Package graph
// implements the protocol.
package service

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/oci/egress"
	"github.com/cluster-version/cvo/pkg/oci/registry"
	updategraph "github.com/cluster-version/cvo/pkg/update/graph"
)

// Options configures the requests to the update service.
type Options struct {
	// URL replaces spec.upstream. If both are empty, Default is used.
	URL, Default string
	// UserAgent is the user agent of the requests; empty means "ClusterVersionOperator".
	UserAgent string
}

// Asker sends requests to update services.
type Asker struct {
	reader client.Reader
	access registry.Options
	agent  string
}

// NewAsker returns an Asker that reads the cluster's configuration with reader. access takes precedence over it.
func NewAsker(reader client.Reader, access registry.Options, options Options) Asker {
	return Asker{reader, access, cmp.Or(options.UserAgent, "ClusterVersionOperator")}
}

// readTimeout is the maximum time to read the cluster's configuration.
const readTimeout = time.Minute

// Ask queries an update service. before is the service's last answer.
func (a Asker) Ask(ctx context.Context, q updategraph.Query, before updategraph.Answer) (updategraph.Answer, error) {
	reading, cancel := context.WithTimeout(ctx, readTimeout)
	defer cancel()
	e, err := egress.ReadNetwork(reading, a.reader, a.access)
	if err != nil {
		return updategraph.Answer{}, fmt.Errorf("reading the cluster's network configuration: %w", err)
	}
	web := &updategraph.Client{HTTP: registry.New(e).RetryingWebClient(), UserAgent: a.agent}
	return web.Ask(ctx, q, before)
}
