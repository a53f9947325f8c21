package precondition

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/version"
	"k8s.io/client-go/discovery"
)

// serverPatience is the maximum time for discovery, even if several aggregated API servers hang.
const serverPatience = 30 * time.Second

// maxServerVersion is the maximum length of an API server's version in bytes. The rest is dropped.
const maxServerVersion = 128

// Discoverer returns facts about an API server; see *discovery.DiscoveryClient.
type Discoverer interface {
	ServerVersionWithContext(ctx context.Context) (*version.Info, error)
	ServerGroupsAndResourcesWithContext(ctx context.Context) ([]*metav1.APIGroup, []*metav1.APIResourceList, error)
}

// ReadServer returns the version and the kinds of the API server. APIs whose aggregated server is down are reported as unknown, because
// they may be served again by the time they are needed.
func ReadServer(ctx context.Context, d Discoverer) Server {
	ctx, cancel := context.WithTimeout(ctx, serverPatience)
	defer cancel()
	info, err := d.ServerVersionWithContext(ctx)
	if err != nil {
		return Server{Err: fmt.Errorf("reading the server's version: %w", err)}
	}
	_, lists, err := d.ServerGroupsAndResourcesWithContext(ctx)
	failed, partial := discovery.GroupDiscoveryFailedErrorGroups(err)
	if err != nil && !partial {
		return Server{Err: fmt.Errorf("reading the list of APIs: %w", err)}
	}
	s := Server{
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
			if !strings.Contains(r.Name, "/") { // not a subresource
				s.Kinds[gv.WithKind(r.Kind)] = true
			}
		}
	}
	return s
}
