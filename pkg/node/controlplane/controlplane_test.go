package controlplane

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/cluster-version/cvo/pkg/api"
)

// servers has API servers: one behind the address of the cluster and one for each of further addresses of the loopback network.
type servers struct {
	client.Client
	main  *httptest.Server
	slice *discoveryv1.EndpointSlice
	etcd  []corev1.Pod
	// status is the answer to /readyz by host. requests counts them, and reads of the EndpointSlice as "slice".
	status map[string]int
	// together is done when all servers that wait for each other are asked; nil if they do not.
	together *sync.WaitGroup
	mutex    sync.Mutex
	requests map[string]int
}

func (s *servers) count(name string) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	s.requests[name]++
}

// newServers starts servers in a bubble of synctest. Its time stands still while they wait for connections, so no answer is too late on a busy
// machine.
func newServers(t *testing.T, hosts ...string) *servers {
	s := &servers{status: map[string]int{}, requests: map[string]int{}}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	port := listener.Addr().(*net.TCPAddr).Port
	serve := func(host string, listener net.Listener) *httptest.Server {
		server := &httptest.Server{Listener: listener, Config: &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			s.count(host)
			if s.together != nil {
				s.together.Done()
				s.together.Wait()
			}
			if status := s.status[host]; status != 0 {
				w.WriteHeader(status)
				_, _ = w.Write([]byte("[-]etcd failed: reason withheld\n"))
			}
		})}}
		server.Start()
		t.Cleanup(server.Close)
		return server
	}
	s.main = serve("main", listener)
	number := int32(port)
	s.slice = &discoveryv1.EndpointSlice{Ports: []discoveryv1.EndpointPort{{Port: &number}}}
	for _, host := range hosts {
		further, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		require.NoError(t, err)
		serve(host, further)
		s.slice.Endpoints = append(s.slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{host}})
	}
	return s
}

func (s *servers) Get(_ context.Context, key client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	s.count("slice")
	if key != (client.ObjectKey{Namespace: "default", Name: "kubernetes"}) {
		return errors.New("unexpected request for " + key.String())
	}
	if len(s.slice.Endpoints) == 0 {
		return apierrors.NewNotFound(discoveryv1.Resource("endpointslices"), key.Name)
	}
	s.slice.DeepCopyInto(o.(*discoveryv1.EndpointSlice))
	return nil
}

func (s *servers) List(_ context.Context, list client.ObjectList, _ ...client.ListOption) error {
	list.(*corev1.PodList).Items = s.etcd
	return nil
}

func (s *servers) guard(clk *clocktesting.FakePassiveClock) *Guard {
	return New(s, s, &rest.Config{Host: s.main.URL}, clk)
}

// newNode returns a control-plane node with an address.
func newNode(name, address string) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"node-role.kubernetes.io/control-plane": ""}}}
	n.Status.Addresses = []corev1.NodeAddress{{Type: corev1.NodeHostName, Address: name}, {Type: corev1.NodeInternalIP, Address: address}}
	return n
}

// withAddress returns a copy of a node with another address.
func withAddress(n *corev1.Node, address string) *corev1.Node {
	n = n.DeepCopy()
	n.Status.Addresses = append(n.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeExternalIP, Address: address})
	return n
}

func TestGuardAsksAnAPIServerOnAnotherNode(t *testing.T) {
	nodes := []*corev1.Node{newNode("m0", "127.0.0.2"), newNode("m1", "127.0.0.3"), newNode("m2", "127.0.0.4")}
	worker := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "w0"}}
	for _, tt := range []struct {
		name   string
		hosts  []string // with an API server
		failed []string
		nodes  []*corev1.Node // the first one is to start
		want   string
		// asked are the servers. If one is ready, the others may be asked, too.
		asked string
	}{
		{name: "it asks the only server", hosts: []string{"127.0.0.2"}, nodes: []*corev1.Node{nodes[0], worker}, asked: "main"},
		{
			name: "it refuses while the only server is not ready", failed: []string{"main"}, nodes: nodes[:1],
			want: "waits for the API server: /readyz answers 500: etcd failed", asked: "main",
		},
		{name: "it asks the other server", hosts: []string{"127.0.0.2", "127.0.0.3"}, failed: []string{"main", "127.0.0.2"}, nodes: nodes[:2], asked: "slice 127.0.0.3"},
		{
			name: "it accepts one of the others", hosts: []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"}, failed: []string{"127.0.0.3"}, nodes: nodes,
			asked: "slice 127.0.0.4",
		},
		{
			name: "it refuses without another server", hosts: []string{"127.0.0.2", "127.0.0.3", "127.0.0.4"}, failed: []string{"127.0.0.3", "127.0.0.4"}, nodes: nodes,
			want:  "waits for an API server on another node: 127.0.0.3:PORT: /readyz answers 500: etcd failed (and 1 other server)",
			asked: "slice 127.0.0.3 127.0.0.4",
		},
		{
			name: "it ignores a virtual address that may lead to the node", hosts: []string{"127.0.0.3", "127.0.0.9"}, failed: []string{"127.0.0.3"},
			nodes: []*corev1.Node{withAddress(nodes[0], "127.0.0.9"), withAddress(nodes[1], "127.0.0.9")},
			want:  "waits for an API server on another node: 127.0.0.3:PORT: /readyz answers 500: etcd failed", asked: "slice 127.0.0.3",
		},
		{name: "it asks the cluster's address if no server is known", nodes: nodes, asked: "slice main"},
		{name: "it asks the cluster's address if no node has the servers", hosts: []string{"127.0.0.2", "127.0.0.9"}, nodes: nodes, asked: "slice main"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newServers(t, tt.hosts...)
				for _, host := range tt.failed {
					s.status[host] = http.StatusInternalServerError
				}
				why, wait := s.guard(clocktesting.NewFakePassiveClock(time.Now())).Refusal(t.Context(), tt.nodes[0], tt.nodes, nil)

				_, port, _ := strings.Cut(strings.TrimPrefix(s.main.URL, "http://"), ":")
				assert.Equal(t, strings.ReplaceAll(tt.want, "PORT", port), why)
				assert.Equal(t, tt.want != "", wait > 0)
				s.mutex.Lock()
				defer s.mutex.Unlock()
				for host := range strings.FieldsSeq(tt.asked) {
					assert.Equal(t, 1, s.requests[host], host)
					delete(s.requests, host)
				}
				if tt.want == "" && len(tt.hosts) > 2 {
					delete(s.requests, "127.0.0.3")
				}
				assert.Empty(t, s.requests)
			})
		})
	}
}

// TestGuardAsksTheServersTogether has servers that answer when both are asked.
func TestGuardAsksTheServersTogether(t *testing.T) {
	nodes := []*corev1.Node{newNode("m0", "127.0.0.2"), newNode("m1", "127.0.0.3"), newNode("m2", "127.0.0.4")}
	s := newServers(t, "127.0.0.3", "127.0.0.4")
	s.status = map[string]int{"127.0.0.3": http.StatusInternalServerError, "127.0.0.4": http.StatusInternalServerError}
	s.together = &sync.WaitGroup{}
	s.together.Add(2)
	why, _ := s.guard(clocktesting.NewFakePassiveClock(time.Now())).Refusal(t.Context(), nodes[0], nodes, nil)
	assert.Contains(t, why, "/readyz answers 500: etcd failed (and 1 other server)")
}

func TestGuardAsksOnlyWhenACheckIsDue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t)
		clk := clocktesting.NewFakePassiveClock(time.Now())
		g := s.guard(clk)
		nodes := []*corev1.Node{newNode("m0", "127.0.0.2"), newNode("m1", "127.0.0.3")}
		s.etcd = []corev1.Pod{{ObjectMeta: metav1.ObjectMeta{Namespace: "kube-system", Name: "etcd-m1"}, Spec: corev1.PodSpec{NodeName: "m1"}}}
		check := func(n *corev1.Node) string {
			why, _ := g.Refusal(t.Context(), n, nodes, nil)
			return why
		}
		assert.Equal(t, "waits for the etcd member on node m1: pod kube-system/etcd-m1 is not ready", check(nodes[0]))
		assert.Empty(t, s.requests, "etcd decides first")
		assert.Empty(t, check(nodes[1]), "its own member does not matter")
		s.etcd = nil
		s.status["main"] = http.StatusInternalServerError
		for range 3 {
			assert.NotEmpty(t, check(nodes[0]))
		}
		assert.Equal(t, 2, s.requests["main"], "one for each node")
		s.status["main"] = http.StatusOK
		clk.SetTime(clk.Now().Add(guardAge))
		assert.Empty(t, check(nodes[0]))
		s.status["main"] = http.StatusInternalServerError
		assert.Empty(t, check(nodes[0]), "the answer counts for a while")
		clk.SetTime(clk.Now().Add(readyAge))
		assert.NotEmpty(t, check(nodes[0]), "a server that was ready may fail soon")
		assert.Equal(t, 4, s.requests["main"])
	})
}

func TestGuardCountsADrainUnderTheCordonOfAnotherClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newServers(t)
		g := s.guard(clocktesting.NewFakePassiveClock(time.Now()))
		nodes := []*corev1.Node{newNode("m0", "127.0.0.2"), newNode("m1", "127.0.0.3")}
		const waits = "waits for control-plane node m0, which another client has cordoned and whose daemon requests a drain: uncordon one of them"
		for _, tt := range []struct {
			name, desired, applied string
			isCordoned             bool
			want                   string
		}{
			{"it waits for the drain", "drain-v1", "uncordon-v0", true, waits},
			{"it waits for the update after the drain", "drain-v1", "drain-v1", true, waits},
			{"it ignores a cordon after the update", "uncordon-v1", "uncordon-v1", true, ""},
			{"it ignores a cordon without an update", "", "", true, ""},
			{"it ignores a drain that has not begun", "drain-v1", "uncordon-v0", false, ""},
		} {
			nodes[0].Annotations = map[string]string{api.DesiredDrainAnnotation: tt.desired, api.AppliedDrainAnnotation: tt.applied}
			nodes[0].Spec.Unschedulable = tt.isCordoned
			why, _ := g.Refusal(t.Context(), nodes[1], nodes, nil)
			assert.Equal(t, tt.want, why, tt.name)
		}
		nodes[0].Annotations[api.DesiredDrainAnnotation], nodes[0].Spec.Unschedulable = "drain-v1", true
		why, _ := g.Refusal(t.Context(), nodes[0], nodes, nil)
		assert.Empty(t, why, "it does not wait for itself")
	})
}
