package update

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"

	mcfgv1 "github.com/openshift/api/machineconfiguration/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// access keeps the ClusterRoles with which daemons read rendered MachineConfigs. A daemon needs only those in use, and only the daemons of the
// control plane may read its configs: these contain credentials.
type access struct {
	client client.Client
	// granted has the names in each role, as this process has written them.
	granted map[string][]string
}

// grant makes the role list exactly these MachineConfigs. A role that does not exist stays absent: the daemons have other permissions.
func (a *access) grant(ctx context.Context, role string, configs []string) error {
	if before, ok := a.granted[role]; ok && slices.Equal(before, configs) {
		return nil
	}
	rules := []rbacv1.PolicyRule{}
	if len(configs) > 0 { // a rule without names would allow all
		rules = append(rules, rbacv1.PolicyRule{
			APIGroups: []string{mcfgv1.GroupName}, Resources: []string{"machineconfigs"}, ResourceNames: configs, Verbs: []string{"get"},
		})
	}
	patch, err := json.Marshal(map[string]any{"rules": rules})
	if err != nil {
		return err
	}
	object := &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: role}}
	if err := client.IgnoreNotFound(a.client.Patch(ctx, object, client.RawPatch(types.MergePatchType, patch))); err != nil {
		return fmt.Errorf("writing ClusterRole %s: %w", role, err)
	}
	a.granted[role] = configs
	return nil
}
