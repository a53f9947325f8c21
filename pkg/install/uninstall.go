package install

import (
	"cmp"
	"context"
	"fmt"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// Removal says what is to be removed.
type Removal struct {
	// Namespace of the operator; default api.OperatorNamespace.
	Namespace string
	// Name of the ClusterVersion; default "version".
	Name string
	// Platform removes what releases brought, too.
	Platform bool
	// DeleteData goes on where that would delete volume claims or objects that no release brought.
	DeleteData bool
	// Force goes on while a release is being rolled out.
	Force bool
	// DryRun only tells.
	DryRun bool
}

// Uninstall removes the operator, and what releases brought only if asked for. Nothing is touched before every reason to
// refuse has been looked at. done is told each object, say what is waited for. It can be done again after it was
// interrupted.
func Uninstall(ctx context.Context, clk clock.Clock, cfg *rest.Config, removal Removal, done func(Result), say func(string)) ([]Result, error) {
	removal.Namespace = cmp.Or(removal.Namespace, api.OperatorNamespace)
	removal.Name = cmp.Or(removal.Name, api.ClusterVersionName)
	c, err := connect(cfg, nil)
	if err != nil {
		return nil, err
	}
	served, err := discovery.NewDiscoveryClientForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	core, err := corev1client.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("connecting to the API server: %w", err)
	}
	u := &remover{cluster: c, clock: clk, discovery: served, core: core, removal: removal, done: done, say: say}
	if err := u.look(ctx); err != nil {
		return nil, err
	}
	for _, step := range []struct {
		name string
		run  func(context.Context) error
		// left says what an interruption leaves behind.
		left string
	}{
		{"stopping the operator", u.stop, "the operator is stopped, all else is as it was"},
		{"taking the platform out of the ClusterVersion's hands", u.disown, "the operator is stopped, and the platform as it was"},
		{"deleting the ClusterVersion", u.clusterVersion, "the operator is stopped, the ClusterVersion gone or about to go, and the platform as it was"},
		{"deleting the platform", u.platform, "the operator is stopped, the ClusterVersion gone, and a part of the platform, too"},
		{"deleting the operator", u.operator, "the ClusterVersion is gone, and a part of the operator, too"},
	} {
		if err := step.run(ctx); err != nil {
			if err := u.giveBack(ctx); err != nil {
				u.say(err.Error())
			}
			return u.results, &UnfinishedError{Left: step.left, Err: fmt.Errorf("%s: %w", step.name, err)}
		}
	}
	return u.results, nil
}

// UnfinishedError says what an uninstall leaves behind that did not come to its end.
type UnfinishedError struct {
	// Left is how the cluster is, in a sentence without a period.
	Left string
	Err  error
}

func (e *UnfinishedError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *UnfinishedError) Unwrap() error { return e.Err }

// remover takes an operator out of a cluster.
type remover struct {
	*cluster
	clock     clock.Clock
	discovery *discovery.DiscoveryClient
	core      corev1client.ConfigMapsGetter
	removal   Removal
	done      func(Result)
	say       func(string)
	results   []Result

	// version is nil if there is no ClusterVersion any more.
	version *configv1.ClusterVersion
	owned   []metav1.PartialObjectMetadata
	// places tell which manifest has brought an object, as far as that is recorded.
	places map[manifest.ID]inventory.Record

	hold
}
