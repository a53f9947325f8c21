package operator

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"

	"github.com/cluster-version/cvo/pkg/precondition"
)

// serverPatience bounds how long the API server is asked what it serves, however many of the API servers behind it hang.
const serverPatience = 30 * time.Second

// maxServerVersion is as much as is taken of what an API server says of its version, in bytes.
const maxServerVersion = 128

// discoverer is what finds out about an API server; *discovery.DiscoveryClient is one.
type discoverer interface {
	ServerVersionWithContext(ctx context.Context) (*version.Info, error)
	ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

// server finds out what the API server is and serves. APIs of which it cannot tell, because the API server behind them is
// down, are told as unknown: they may be served again by the time that somebody needs them.
func server(ctx context.Context, d discoverer) precondition.Server {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	info, err := d.ServerVersionWithContext(ctx)
	if err != nil {
		return precondition.Server{Err: fmt.Errorf("asking for its version: %w", err)}
	}
	_, lists, err := d.ServerGroupsAndResourcesWithContext(ctx)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return precondition.Server{Err: fmt.Errorf("asking for its APIs: %w", err)}
	}
	s := precondition.Server{
		Version: info.GitVersion[:min(len(info.GitVersion), maxServerVersion)],
		Kinds:   map[schema.GroupVersionKind]bool{}, Unknown: map[schema.GroupVersion]bool{},
	}
	for gv := range failed {
		s.Unknown[gv] = true
	}
	for _, list := range lists {
		gv, err := schema.ParseGroupVersion(list.GroupVersion)
		if err != nil {
			continue
		}
		for _, r := range list.APIResources {
			if !strings.Contains(r.Name, "/") { // no subresource
				s.Kinds[gv.WithKind(r.Kind)] = true
			}
		}
	}
	return s
}
