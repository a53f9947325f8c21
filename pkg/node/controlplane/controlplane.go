// Package controlplane decides whether a control-plane node may leave now: whether etcd and the API survive its loss. The update of a node begins only
// then, and so does each drain.
package controlplane

import (
	"context"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/internal/printable"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/apiserver"
	"github.com/cluster-version/cvo/pkg/node/drain"
	"github.com/cluster-version/cvo/pkg/node/plan"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

const (
	// guardAge is the time for which a refusal by API servers counts. No event shows when they are ready.
	guardAge = 10 * time.Second
	// readyAge is the time for which their consent counts, so that a start that met another write is repeated without further requests. It is
	// short: a server may fail after its answer.
	readyAge = time.Second
)

// Guard checks whether the control plane survives the loss of a node. It sends requests only when it is asked.
type Guard struct {
	client client.Reader
	// reader reads from the API server.
	reader client.Reader
	config *rest.Config
	clock  clock.PassiveClock

	mutex sync.Mutex
	// checks are the valid checks of API servers by node.
	checks map[string]check
}

// check is a check of API servers: why a node must not leave, and the end of the check's validity.
type check struct {
	why   string
	until time.Time
}

// New returns the guard of a cluster. c may read from a cache. reader reads from the API server, whose address config has.
func New(c, reader client.Reader, config *rest.Config, clk clock.PassiveClock) *Guard {
	return &Guard{client: c, reader: reader, config: config, clock: clk, checks: map[string]check{}}
}

// Refusal returns why a control-plane node must not leave now, as a sentence without subject and period; empty if it may. nodes and budgets are those
// of the cluster. wait is the time until the API servers are checked again; 0 if an event of a node, or of etcd's pods or budgets, shows when the node may leave.
func (g *Guard) Refusal(ctx context.Context, n *corev1.Node, nodes []*corev1.Node, budgets []policyv1.PodDisruptionBudget) (why string, wait time.Duration) {
	for _, other := range nodes {
		if other.Name == n.Name || !pool.IsControlPlaneNode(other) {
			continue
		}
		if _, ours := other.Annotations[api.CordonAnnotation]; ours {
			return fmt.Sprintf("waits for control-plane node %s, which has a cordon of the node stage", other.Name), 0
		}
		if other.Spec.Unschedulable && drain.IsRequested(other) {
			return fmt.Sprintf("waits for control-plane node %s, which another client has cordoned and whose daemon requests a drain: uncordon one of them", other.Name), 0
		}
	}
	var members corev1.PodList
	if err := g.client.List(ctx, &members, client.InNamespace(metav1.NamespaceSystem), client.MatchingLabels(plan.EtcdLabels()), client.UnsafeDisableDeepCopy); err != nil {
		return "waits for the pods of etcd, which cannot be listed: " + err.Error(), guardAge
	}
	if why := plan.EtcdRefusal(n, nodes, members.Items, budgets); why != "" {
		return why, 0
	}
	last, isValid := g.last(n.Name)
	if !isValid {
		last.why = g.checkServers(ctx, n, nodes)
		age := guardAge
		if last.why == "" {
			age = readyAge
		}
		last.until = g.clock.Now().Add(age)
		g.mutex.Lock()
		g.checks[n.Name] = last
		g.mutex.Unlock()
	}
	if last.why == "" {
		return "", 0
	}
	return last.why, last.until.Sub(g.clock.Now())
}

// last returns the last check of a node if it is valid. It forgets all others that are not.
func (g *Guard) last(node string) (last check, isValid bool) {
	g.mutex.Lock()
	defer g.mutex.Unlock()
	now := g.clock.Now()
	maps.DeleteFunc(g.checks, func(_ string, c check) bool { return !now.Before(c.until) })
	last, isValid = g.checks[node]
	return last, isValid
}

// checkServers returns why the API would not survive the loss of a node, and empty if it would. A server on another node must be ready. The only
// control-plane node has only its own server, and where no other server is known, the address of the cluster counts.
func (g *Guard) checkServers(ctx context.Context, n *corev1.Node, nodes []*corev1.Node) string {
	var others []string
	if !pool.IsOnlyControlPlaneNode(n, nodes) {
		var servers discoveryv1.EndpointSlice
		err := g.reader.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: "kubernetes"}, &servers)
		if client.IgnoreNotFound(err) != nil {
			return "waits for the addresses of the API servers, which cannot be read: " + err.Error()
		}
		others = addressesBeside(n, nodes, &servers)
	}
	if len(others) == 0 {
		if err := apiserver.Ready(ctx, g.config, ""); err != nil {
			return "waits for the API server: " + err.Error()
		}
		return ""
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	errs := make([]error, len(others))
	var requests sync.WaitGroup
	for i, address := range others {
		requests.Go(func() {
			if errs[i] = apiserver.Ready(ctx, g.config, address); errs[i] == nil {
				cancel() // one is enough
			}
		})
	}
	requests.Wait()
	if slices.Contains(errs, nil) {
		return ""
	}
	return printable.AndOthers(fmt.Sprintf("waits for an API server on another node: %s: %s", others[0], errs[0]), len(others), "server")
}

// addressesBeside returns the addresses of API servers on nodes other than n, sorted. An address that no node has may belong to a load
// balancer, or to n. One that n has as well may be a virtual address, which leads to n.
func addressesBeside(n *corev1.Node, nodes []*corev1.Node, servers *discoveryv1.EndpointSlice) []string {
	known := map[string]bool{}
	for _, other := range nodes {
		for _, a := range other.Status.Addresses {
			known[a.Address] = true
		}
	}
	for _, own := range n.Status.Addresses {
		delete(known, own.Address)
	}
	var addresses []string
	for _, port := range servers.Ports {
		for _, e := range servers.Endpoints {
			for _, ip := range e.Addresses {
				if port.Port != nil && known[ip] {
					addresses = append(addresses, net.JoinHostPort(ip, strconv.Itoa(int(*port.Port))))
				}
			}
		}
	}
	slices.Sort(addresses)
	return addresses
}
