// Package leader queries the leading operator for its report of the rollout. It finds the operator by its Lease, reaches its pod through
// the API server, and sends credentials only to a server whose key the Lease or the caller names.
package leader

import (
	"cmp"
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

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/cli/command"
	"github.com/cluster-version/cvo/pkg/engine/report"
	"github.com/cluster-version/cvo/pkg/kube/leader"
	"github.com/cluster-version/cvo/pkg/kube/serve"
	"github.com/cluster-version/cvo/pkg/operator/rolloutpage"
	"github.com/cluster-version/cvo/pkg/view/insight"
)

const (
	// LocalServer is the address of an operator that runs on this host.
	LocalServer = "https://127.0.0.1:9099"
	// endpointPort is the name of the container port. defaultEndpointPort is the number if no port has that name.
	endpointPort        = "metrics"
	defaultEndpointPort = 9099
)

// Connection queries the leading operator. It connects at the first query, and reconnects after a failed query, because another process may
// lead by then.
type Connection struct {
	Clock  clock.PassiveClock
	Config *rest.Config
	// Namespace and Name identify the Lease.
	Namespace, Name string
	// Server is a URL; if empty, Connection looks up the leader.
	Server string
	// Ca are the PEM certificates that verify the server; if empty, the key's fingerprint in the Lease verifies it.
	Ca []byte

	client  *serve.Client
	stop    func()
	lastTag string
}

// notRunningError means that no operator leads.
type notRunningError struct {
	text string
	// afterUninstall is true if an uninstall holds the Lease, or was the last to hold it.
	afterUninstall bool
}

// IsAfterUninstall reports whether an error means that no operator leads because of an uninstall, which runs or did not
// finish. Its text says so.
func IsAfterUninstall(err error) bool {
	vacant, ok := errors.AsType[*notRunningError](err)
	return ok && vacant.afterUninstall
}

func (e *notRunningError) Error() string { return e.text }

// ErrNoRollout means that the operator leads but has no rollout to report yet.
var ErrNoRollout = errors.New("no rollout has started yet")

// Rollout queries the snapshot. It returns nil if nothing has changed since the last query.
func (s *Connection) Rollout(ctx context.Context) (*report.Snapshot, error) {
	if s.client == nil {
		if err := s.connect(ctx); err != nil {
			return nil, err
		}
	}
	snapshot, tag, err := rolloutpage.Read(ctx, s.client, true, s.lastTag)
	if err == nil {
		s.lastTag = tag
		return snapshot, nil
	}
	if apierrors.ReasonForError(err) == rolloutpage.ReasonNoRollout {
		return nil, ErrNoRollout
	}
	s.Close() // a new leader has another address or certificate
	return nil, s.explain(err)
}

// Progress is like Rollout, but returns nil before the first rollout.
func (s *Connection) Progress(ctx context.Context) (*report.Snapshot, error) {
	snapshot, err := s.Rollout(ctx)
	if errors.Is(err, ErrNoRollout) {
		return nil, nil // nil means that nothing has changed
	}
	return snapshot, err
}

// Close closes the connection; the next query connects again.
func (s *Connection) Close() {
	if s.client != nil {
		s.client.Close()
	}
	if s.stop != nil {
		s.stop()
	}
	s.client, s.stop, s.lastTag = nil, nil, ""
}

// explain adds a remedy to an error.
func (s *Connection) explain(err error) error {
	var refused apierrors.APIStatus
	var dialed *net.OpError
	switch {
	case errors.Is(err, serve.ErrUntrusted):
		return fmt.Errorf("%w: compare --server with the leader in Lease %s/%s", err, s.Namespace, s.Name)
	case errors.As(err, &refused) && refused.Status().Reason == metav1.StatusReasonUnauthorized:
		return fmt.Errorf("the operator rejects your credentials: %w (another --context may have valid credentials)", err)
	case errors.As(err, &refused):
		return fmt.Errorf("querying the operator: %w", err)
	case errors.As(err, &dialed) && dialed.Op == "dial":
		return unreachable(err)
	}
	return fmt.Errorf("querying the operator: %w", err)
}

func unreachable(err error) error {
	return fmt.Errorf("the leading operator cannot be reached: %w: set --server to a URL such as %s, with the address that 'cvo start' listens on (--listen)", err, LocalServer)
}

// connect looks up the leader, its address and its certificate.
func (s *Connection) connect(ctx context.Context) error {
	if s.Server != "" && len(s.Ca) > 0 {
		return s.dial(s.Server, serve.Trust{CA: s.Ca}, nil)
	}
	found, err := leader.Find(ctx, s.Config, s.Namespace, s.Name)
	if apierrors.IsForbidden(err) {
		return fmt.Errorf("%w: ask an administrator for ClusterRole cluster-version-operator-viewer, or use --server and --server-ca", err)
	}
	if err != nil {
		return err
	}
	if found.Gone || found.IsUninstall() {
		return notRunning(found)
	}
	trust := serve.Trust{CA: s.Ca}
	if len(s.Ca) == 0 {
		if found.Fingerprint == "" {
			if err := listens(ctx, cmp.Or(s.Server, LocalServer)); err != nil {
				return unreachable(err)
			}
			return fmt.Errorf("the Lease of leader %s has no key fingerprint: pass the CA of its certificate with --server-ca", found.Host)
		}
		trust.Fingerprint = found.Fingerprint
	}
	if s.Server != "" {
		return s.dial(s.Server, trust, nil)
	}
	pod, err := s.pod(ctx, found.Host)
	if err != nil {
		return err
	}
	if pod == nil {
		return s.dial(LocalServer, trust, nil)
	}
	return s.dialPod(ctx, pod, trust)
}

// listens returns an error if no process listens at the address of a URL.
func listens(ctx context.Context, server string) error {
	address, err := url.Parse(server)
	if err != nil {
		return err
	}
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", net.JoinHostPort(address.Hostname(), cmp.Or(address.Port(), address.Scheme)))
	if err != nil {
		return err
	}
	return conn.Close()
}

func (s *Connection) dial(server string, trust serve.Trust, dial serve.DialFunc) error {
	client, err := serve.NewClient(s.Config, server, trust, dial)
	if err != nil {
		return err
	}
	s.client = client
	return nil
}

// notRunning returns an error that names the last leader and the time since it stopped.
func notRunning(last leader.Record) error {
	vacancy := last.Vacancy()
	switch {
	case last.IsUninstall():
		return &notRunningError{text: "the version operator is not running: " + vacancy, afterUninstall: true}
	case vacancy != "":
		text := fmt.Sprintf("the version operator is not running: %s %s ago", vacancy, last.Silent.Round(time.Second))
		if last.AfterUninstall {
			text += ": run " + insight.UninstallRemedy(last)
		}
		return &notRunningError{text, last.AfterUninstall}
	}
	return &notRunningError{text: fmt.Sprintf("the version operator is not running: none has ever run here (no Lease %s/%s); install it with 'cvo install', or use another --namespace",
		last.Namespace, last.LeaseName)}
}

// WarnVacant prints a warning if no operator leads any more, except during a handover. It prints nothing if the Lease does not exist or
// cannot be read.
func WarnVacant(ctx context.Context, streams command.Streams, cfg *rest.Config, namespace, name string) {
	last, err := leader.Find(ctx, cfg, namespace, name)
	if err != nil {
		return
	}
	Warn(streams, insight.VacancyInsights(last))
}

// Warn prints insights as warnings.
func Warn(streams command.Streams, insights []insight.Insight) {
	for _, found := range insights {
		if found.Level > insight.Info {
			streams.Warnf("%s: %s See %s", found.Summary, found.Description, found.Reference)
		}
	}
}

// pod returns the leading pod, or nil if the leader is a process outside the cluster.
func (s *Connection) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	client, err := corev1client.NewForConfig(s.Config)
	if err != nil {
		return nil, fmt.Errorf("creating client for pods: %w", err)
	}
	pod, err := client.Pods(s.Namespace).Get(ctx, name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err) {
		return nil, nil // the name belongs to a host outside the cluster
	}
	if err != nil {
		return nil, fmt.Errorf("finding the leader's pod: %w: ask an administrator for ClusterRole cluster-version-operator-viewer, or use --server", err)
	}
	return pod, nil
}

// dialPod connects to a pod through the API server.
func (s *Connection) dialPod(ctx context.Context, pod *corev1.Pod, trust serve.Trust) error {
	address, stop, err := forwardPod(ctx, s.Config, pod, portOf(pod))
	if err != nil {
		return err
	}
	s.stop = stop
	var dialer net.Dialer
	// The URL contains the host name of certificates from files. The connection itself goes through the tunnel.
	server := url.URL{Scheme: "https", Host: fmt.Sprintf("%s.%s.svc:%d", api.OperatorService, s.Namespace, defaultEndpointPort)}
	err = s.dial(server.String(), trust, func(ctx context.Context, network, _ string) (net.Conn, error) {
		return dialer.DialContext(ctx, network, address)
	})
	if err != nil {
		s.Close()
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
