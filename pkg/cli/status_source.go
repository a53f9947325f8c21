package cli

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/operator"
	"github.com/cluster-version/cvo/pkg/rollout"
)

const (
	// localServer is where an operator listens that runs on this host.
	localServer = "https://127.0.0.1:9099"
	// endpointPort is the name of the container port, and defaultEndpointPort its number where it has no name.
	endpointPort        = "metrics"
	defaultEndpointPort = 9099
	// endpointService is the name that a certificate from files is for.
	endpointService = "cluster-version-operator"
)

// statusSource asks the operator that leads. It connects at the first question, and again after an answer that says
// that somebody else leads now.
type statusSource struct {
	clock clock.PassiveClock
	cfg   *rest.Config
	// namespace and name are those of the Lease.
	namespace, name string
	// server is a URL, or empty to find the leader.
	server string
	// ca in PEM verifies the server's certificate; without one the Lease tells the fingerprint of its key.
	ca []byte

	client *operator.Client
	stop   func()
	tag    string
}

// notRunningError says that nobody leads.
type notRunningError struct{ text string }

func (e *notRunningError) Error() string { return e.text }

// errNoRollout: the operator leads but has nothing to tell yet.
var errNoRollout = errors.New("no rollout has begun yet")

// rollout asks for the account; it is nil if nothing changed since the last one.
func (s *statusSource) rollout(ctx context.Context) (*rollout.Snapshot, error) {
	if s.client == nil {
		if err := s.connect(ctx); err != nil {
			return nil, err
		}
	}
	snapshot, tag, err := s.client.Rollout(ctx, true, s.tag)
	if err == nil {
		s.tag = tag
		return snapshot, nil
	}
	if apierrors.ReasonForError(err) == operator.ReasonNoRollout {
		return nil, errNoRollout
	}
	s.close() // whoever leads now listens elsewhere, or with another certificate
	return nil, s.explain(err)
}

func (s *statusSource) close() {
	if s.client != nil {
		s.client.Close()
	}
	if s.stop != nil {
		s.stop()
	}
	s.client, s.stop, s.tag = nil, nil, ""
}

// explain adds the remedy to what went wrong.
func (s *statusSource) explain(err error) error {
	var refused apierrors.APIStatus
	var dialed *net.OpError
	switch {
	case errors.Is(err, operator.ErrUntrusted):
		return fmt.Errorf("%w: is --server the one whose name Lease %s/%s has?", err, s.namespace, s.name)
	case errors.As(err, &refused) && refused.Status().Reason == metav1.StatusReasonUnauthorized:
		return fmt.Errorf("the operator does not know you: %w (another --context may have credentials that this cluster knows)", err)
	case errors.As(err, &refused):
		return fmt.Errorf("asking the operator: %w", err)
	case errors.As(err, &dialed) && dialed.Op == "dial":
		return fmt.Errorf("the operator leads but cannot be reached: %w: name its address with --server, as its --listen has it", err)
	}
	return fmt.Errorf("asking the operator: %w", err)
}

// connect finds out who leads, where it listens and which certificate it has.
func (s *statusSource) connect(ctx context.Context) error {
	if s.server != "" && len(s.ca) > 0 {
		return s.dial(s.server, operator.Trust{CA: s.ca}, nil)
	}
	leader, err := operator.FindLeader(ctx, s.cfg, s.namespace, s.name)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: the role cluster-version-operator-viewer lets you; or give --server and --server-ca", err)
	}
	if err != nil {
		return err
	}
	if leader.Gone {
		return s.notRunning(leader)
	}
	trust := operator.Trust{CA: s.ca}
	if len(s.ca) == 0 {
		if leader.Fingerprint == "" {
			return fmt.Errorf("the Lease of %s, which leads, does not tell the fingerprint of its key: give the CA of its certificate with --server-ca", leader.Host)
		}
		trust.Fingerprint = leader.Fingerprint
	}
	if s.server != "" {
		return s.dial(s.server, trust, nil)
	}
	pod, err := s.pod(ctx, leader.Host)
	if err != nil {
		return err
	}
	if pod == nil {
		return s.dial(localServer, trust, nil)
	}
	return s.dialPod(ctx, pod, trust)
}

func (s *statusSource) dial(server string, trust operator.Trust, dial operator.DialFunc) error {
	client, err := operator.NewClient(s.cfg, server, trust, dial)
	if err != nil {
		return err
	}
	s.client = client
	return nil
}

// notRunning says who led last, and when.
func (s *statusSource) notRunning(leader operator.Leader) error {
	lease := fmt.Sprintf("Lease %s/%s", s.namespace, s.name)
	ago := leader.Silent.Round(time.Second)
	switch {
	case leader.RenewedAt.IsZero():
		return &notRunningError{fmt.Sprintf("the version operator is not running: nobody ever held %s; start it with 'cvo start', or name another --namespace", lease)}
	case leader.Host == "":
		return &notRunningError{fmt.Sprintf("the version operator is not running: %s was given back %s ago", lease, ago)}
	}
	return &notRunningError{fmt.Sprintf("the version operator is not running: %s was last held by %s, which went silent %s ago", lease, leader.Host, ago)}
}

// pod returns the pod that leads, nil if it is a process on some host.
func (s *statusSource) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	client, err := corev1client.NewForConfig(s.cfg)
	if err != nil {
		return nil, fmt.Errorf("creating client for pods: %w", err)
	}
	pod, err := client.Pods(s.namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return nil, nil //nolint:nilnil // a host's name need not be a pod's
	}
	if err != nil {
		return nil, fmt.Errorf("looking for the pod that leads: %w: the role cluster-version-operator-viewer lets you, or give --server", err)
	}
	return pod, nil
}

// dialPod reaches a pod through the API server.
func (s *statusSource) dialPod(ctx context.Context, pod *corev1.Pod, trust operator.Trust) error {
	address, stop, err := forwardPod(ctx, s.cfg, pod, portOf(pod))
	if err != nil {
		return err
	}
	s.stop = stop
	var dialer net.Dialer
	// The URL names what a certificate from files is for; the connection goes through the tunnel all the same.
	server := url.URL{Scheme: "https", Host: fmt.Sprintf("%s.%s.svc:%d", endpointService, s.namespace, defaultEndpointPort)}
	err = s.dial(server.String(), trust, func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, address)
	})
	if err != nil {
		s.close()
	}
	return err
}

func portOf(pod *corev1.Pod) int32 {
	for _, c := range pod.Spec.Containers {
		for _, port := range c.Ports {
			if port.Name == endpointPort {
				return port.ContainerPort
			}
		}
	}
	return defaultEndpointPort
}
