package update

import (
	"context"
	"encoding/json"
	"fmt"
	"sync"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	rbacv1client "k8s.io/client-go/kubernetes/typed/rbac/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/kube/watch"
	"github.com/cluster-version/cvo/pkg/node/pool"
)

// access keeps the ClusterRoles with which daemons read rendered MachineConfigs. A daemon needs only those in use, and only the daemons of the
// control plane may read its configs: these contain credentials.
type access struct {
	client client.Client

	mutex sync.Mutex
	// roles are the newest known ClusterRoles by name.
	roles map[string]watch.Latest[*rbacv1.ClusterRole]
	// absent has the number of events of each role that a write did not find. Until the next event, another write would not find it either.
	absent map[string]int
}

func newAccess(c client.Client) *access {
	return &access{client: c, roles: map[string]watch.Latest[*rbacv1.ClusterRole]{}, absent: map[string]int{}}
}

// readerOf returns the name of the ClusterRole with which the nodes of a pool read their config.
func readerOf(p *mcfgv1.MachineConfigPool) string {
	if pool.IsControlPlanePool(p.Name) {
		return api.ControlPlaneConfigReader
	}
	return api.MachineConfigReader
}

// changes returns a source with a request for each change of the roles by others or by this process. It watches only these two, so the
// controller needs no permission to read other roles.
func (a *access) changes(mgr manager.Manager) (source.Source, error) {
	rbac, err := rbacv1client.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating client for ClusterRoles: %w", err)
	}
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		var watches []toolscache.Controller
		for _, name := range []string{api.ControlPlaneConfigReader, api.MachineConfigReader} {
			watches = append(watches, watch.NewSingle(rbac.ClusterRoles(), &rbacv1.ClusterRole{}, name, watch.OnState(func(role *rbacv1.ClusterRole) {
				a.observe(name, role)
				queue.Add(reconcile.Request{})
			})))
		}
		go watch.Run(ctx, nil, watches...)
		return nil
	}), nil
}

// observe records an event of the watch; nil is a deletion.
func (a *access) observe(name string, role *rbacv1.ClusterRole) {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	latest := a.roles[name]
	latest.Observe(role)
	a.roles[name] = latest
}

// known returns the newest known state of a role.
func (a *access) known(name string) watch.Latest[*rbacv1.ClusterRole] {
	a.mutex.Lock()
	defer a.mutex.Unlock()
	return a.roles[name]
}

// grant makes the role list exactly these MachineConfigs. refusal says why it does not, as a sentence without subject and period; empty if it
// does. err is an error after which the write must be repeated. A role that does not exist stays absent: the release creates it, and its creation
// is an event.
func (a *access) grant(ctx context.Context, name string, configs []string) (refusal string, err error) {
	rules := []rbacv1.PolicyRule{}
	if len(configs) > 0 { // a rule without names would allow all
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{mcfgv1.GroupName}, Resources: []string{"machineconfigs"}, ResourceNames: configs, Verbs: []string{"get"},
		})
	}
	absence := fmt.Sprintf("waits for ClusterRole %s, which allows its daemon to read the config and does not exist: restore it from the release", name)
	seen := a.known(name)
	if seen.Object != nil && equality.Semantic.DeepEqual(seen.Object.Rules, rules) {
		return "", nil
	}
	if events, isAbsent := a.absent[name]; isAbsent && seen.Object == nil && seen.Events == events {
		return absence, nil
	}
	patch, err := json.Marshal(map[string]any{"rules": rules})
	if err != nil {
		return "", err
	}
	role := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: name}}
	err = a.client.Patch(ctx, role, client.RawPatch(types.MergePatchType, patch))
	if apierrors.IsNotFound(err) {
		a.absent[name] = seen.Events
		return absence, nil
	}
	if err != nil {
		return fmt.Sprintf("waits because its daemon may not read the config yet: ClusterRole %s cannot be written: %v", name, err),
			fmt.Errorf("writing ClusterRole %s: %w", name, err)
	}
	a.mutex.Lock()
	defer a.mutex.Unlock()
	latest := a.roles[name]
	latest.Wrote(seen, role)
	a.roles[name] = latest
	return "", nil
}
