package operator

import (
	"context"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/go-logr/logr"
	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	rbacapply "k8s.io/client-go/applyconfigurations/rbac/v1"
	authorizationclient "k8s.io/client-go/kubernetes/typed/authorization/v1"
	rbacclient "k8s.io/client-go/kubernetes/typed/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/manager"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/inventory"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
	"github.com/cluster-version/cvo/pkg/permission"
)

// permissions see to it that the operator may do what releases take, and no more. What the running release takes is in
// ClusterRole api.ReleaseRole. What an update, a preflight or a deletion of orphans takes beyond is in ClusterRole
// api.UpdateRole, which nobody else writes, for as long as that lasts. An operator that may do everything asks once, and
// writes neither.
type permissions struct {
	reviews  authorizationclient.AuthorizationV1Interface
	roles    rbacclient.ClusterRoleInterface
	patience time.Duration

	mu sync.Mutex
	// limited: the API server has said that there is something that the operator may not do.
	limited bool
	// read: it is known what is in api.UpdateRole, and needs is that. What a predecessor of this process needed counts as
	// being for a rollout, whichever.
	read  bool
	needs map[string]need
	// settled is what api.ReleaseRole is known to be cut to.
	settled *payload.Payload
}

// need is what something under way takes. target is the release that it is for, as it was read then; nil if that is not
// known.
type need struct {
	target *payload.Payload
	rules  []rbacv1.PolicyRule
}

// What there may be under way.
const (
	needRollout   = "rollout"
	needPreflight = "preflight"
	needPrune     = "prune"
)

const (
	// effectPatience is how long a role that was written may take to be heeded. API servers learn of it by a watch.
	effectPatience = 20 * time.Second
	effectInterval = 50 * time.Millisecond
	// maxAsked bounds how many accesses are asked for one by one.
	maxAsked = 100
)

func newPermissions(mgr manager.Manager) (*permissions, error) {
	reviews, err := authorizationclient.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating a client for reviews: %w", err)
	}
	roles, err := rbacclient.NewForConfigAndClient(mgr.GetConfig(), mgr.GetHTTPClient())
	if err != nil {
		return nil, fmt.Errorf("creating a client for roles: %w", err)
	}
	return &permissions{reviews: reviews, roles: roles.ClusterRoles(), patience: effectPatience, needs: map[string]need{}}, nil
}

// rollout permits what applying a payload takes; running is the one before, nil if there is none.
func (p *permissions) rollout(ctx context.Context, running, target *payload.Payload) error {
	command := "cvo release rbac " + target.Release.Image
	if running != nil && running.Release.Image != target.Release.Image {
		command += " --from " + running.Release.Image
	}
	return p.ensure(ctx, needRollout, need{target, permission.Rules(target.Manifests)}, command+" | kubectl apply -f -")
}

// preflight permits what asking about each object of a release takes.
func (p *permissions) preflight(ctx context.Context, target *payload.Payload) error {
	return p.ensure(ctx, needPreflight, need{target, permission.Rules(target.Manifests)},
		"cvo release rbac "+target.Release.Image+" | kubectl apply -f -")
}

// prune permits what deleting orphans takes.
func (p *permissions) prune(ctx context.Context, orphans []inventory.Record) error {
	list := make([]permission.Orphan, len(orphans))
	for i, o := range orphans {
		list[i] = permission.Orphan{Group: o.ID.Group, Kind: o.ID.Kind, Name: o.ID.Name}
	}
	return p.ensure(ctx, needPrune, need{rules: permission.Prune(list)}, "delete what 'cvo status --orphans' lists by hand")
}

// ensure permits what something under way takes, until release or settle is called. It fails with a *permission.Error if
// that is not allowed, and if the operator may not allow it itself.
func (p *permissions) ensure(ctx context.Context, what string, wanted need, remedy string) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	have, err := p.review(ctx)
	if err != nil || !p.limited {
		return err
	}
	missing := permission.Missing(have, wanted.rules)
	if len(permission.Missing(have, mayWiden())) > 0 {
		if missing, err = p.confirmed(ctx, missing); err != nil || len(missing) == 0 {
			return err
		}
		return &permission.Error{Missing: missing, Remedy: remedy}
	}
	if err := p.load(ctx); err != nil {
		return err
	}
	if len(missing) == 0 && len(p.needs) == 0 {
		return nil
	}
	before := maps.Clone(p.needs)
	if len(before) == 0 {
		wanted.rules = missing // what is allowed anyway stays so
	}
	if earlier := p.needs[what]; what == needRollout {
		wanted.rules = permission.Union(wanted.rules, earlier.rules)
	}
	p.needs[what] = wanted
	if err := p.write(ctx); err != nil {
		p.needs = before
		return err
	}
	logr.FromContextOrDiscard(ctx).Info("permissions widened", "for", what, "rules", len(missing))
	return p.heeded(ctx, wanted.rules)
}

// mayWiden is what it takes to widen the operator's permissions.
func mayWiden() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{api.UpdateRole},
		Verbs: []string{"get", "create", "patch", "escalate"},
	}}
}

// everything is what a cluster-admin may do.
func everything() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}, Verbs: []string{rbacv1.VerbAll}}}
}

// reviewNamespace is where the operator asks what it may do. It has no rights there by a Role, so the answer tells what it
// may do everywhere.
const reviewNamespace = metav1.NamespaceDefault

// review asks what the operator may do everywhere. It takes one request, whatever the size of a release. Authorizers
// other than RBAC may allow more, which confirmed finds out.
func (p *permissions) review(ctx context.Context) ([]rbacv1.PolicyRule, error) {
	question := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: reviewNamespace}}
	answer, err := p.reviews.SelfSubjectRulesReviews().Create(ctx, question, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("asking what the operator may do: %w", err)
	}
	rules := make([]rbacv1.PolicyRule, len(answer.Status.ResourceRules))
	for i, r := range answer.Status.ResourceRules {
		rules[i] = rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames}
	}
	p.limited = len(permission.Missing(rules, everything())) > 0
	return rules, nil
}

// confirmed returns what of the rules is not allowed by any authorizer. Each access is a request, so beyond a bound what
// RBAC does not allow counts as missing.
func (p *permissions) confirmed(ctx context.Context, rules []rbacv1.PolicyRule) ([]rbacv1.PolicyRule, error) {
	if len(rules) == 0 {
		return nil, nil
	}
	var missing []rbacv1.PolicyRule
	asked := 0
	for _, access := range slices.Concat(everything(), permission.Each(rules)) {
		if asked++; asked > maxAsked {
			missing = append(missing, access)
			continue
		}
		question := &authorizationv1.SelfSubjectAccessReview{}
		question.Spec.ResourceAttributes = &authorizationv1.ResourceAttributes{Group: access.APIGroups[0], Verb: access.Verbs[0]}
		question.Spec.ResourceAttributes.Resource, question.Spec.ResourceAttributes.Subresource = permission.Subresource(access.Resources[0])
		if len(access.ResourceNames) > 0 {
			question.Spec.ResourceAttributes.Name = access.ResourceNames[0]
		}
		answer, err := p.reviews.SelfSubjectAccessReviews().Create(ctx, question, metav1.CreateOptions{})
		switch {
		case err != nil:
			return nil, fmt.Errorf("asking what the operator may do: %w", err)
		case asked == 1 && answer.Status.Allowed:
			return nil, nil // everything
		case asked > 1 && !answer.Status.Allowed:
			missing = append(missing, access)
		}
	}
	return permission.Union(missing), nil
}

// load reads, once in the life of the process, what was needed before.
func (p *permissions) load(ctx context.Context) error {
	if p.read {
		return nil
	}
	role, err := p.roles.Get(ctx, api.UpdateRole, metav1.GetOptions{})
	switch {
	case apierrors.IsNotFound(err):
	case err != nil:
		return fmt.Errorf("reading ClusterRole %s: %w", api.UpdateRole, err)
	case len(role.Rules) > 0:
		p.needs[needRollout] = need{rules: role.Rules}
	}
	p.read = true
	return nil
}

// write makes api.UpdateRole allow what is needed.
func (p *permissions) write(ctx context.Context) error {
	var sets [][]rbacv1.PolicyRule
	for _, n := range p.needs {
		sets = append(sets, n.rules)
	}
	return p.apply(ctx, api.UpdateRole, permission.UpdateDescription, permission.Union(sets...))
}

func (p *permissions) apply(ctx context.Context, name, description string, rules []rbacv1.PolicyRule) error {
	role := rbacapply.ClusterRole(name).WithAnnotations(permission.Role(name, description, nil).Annotations)
	for _, rule := range rules {
		role.WithRules(rbacapply.PolicyRule().WithAPIGroups(rule.APIGroups...).WithResources(rule.Resources...).
			WithResourceNames(rule.ResourceNames...).WithVerbs(rule.Verbs...))
	}
	if _, err := p.roles.Apply(ctx, role, metav1.ApplyOptions{FieldManager: api.FieldManager, Force: true}); err != nil {
		return fmt.Errorf("writing ClusterRole %s: %w", name, err)
	}
	return nil
}

// heeded waits until the API server allows what was written.
func (p *permissions) heeded(ctx context.Context, wanted []rbacv1.PolicyRule) error {
	var missing []rbacv1.PolicyRule
	err := wait.PollUntilContextTimeout(ctx, effectInterval, p.patience, true, func(ctx context.Context) (bool, error) {
		have, err := p.review(ctx)
		missing = permission.Missing(have, wanted)
		return err == nil && len(missing) == 0, err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return &permission.Error{Missing: missing, Remedy: fmt.Sprintf(
			"bind ClusterRole %s, which has these rules, to the account that the operator runs as by a ClusterRoleBinding", api.UpdateRole)}
	}
	return err
}

// release gives up what something took that has ended.
func (p *permissions) release(ctx context.Context, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.drop(ctx, what); err != nil {
		logr.FromContextOrDiscard(ctx).Info("permissions not narrowed", "error", err.Error())
	}
}

func (p *permissions) drop(ctx context.Context, what string) error {
	dropped, ok := p.needs[what]
	if !ok {
		return nil
	}
	delete(p.needs, what)
	if err := p.write(ctx); err != nil {
		p.needs[what] = dropped
		return err
	}
	logr.FromContextOrDiscard(ctx).Info("permissions narrowed", "after", what)
	return nil
}

// settle cuts what is allowed back to what a release takes that is in place. A release brings the role for that; for one
// that does not, it is written here, if it is there at all.
func (p *permissions) settle(ctx context.Context, current *payload.Payload) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.limited {
		return
	}
	if err := p.cut(ctx, current); err != nil {
		logr.FromContextOrDiscard(ctx).Info("permissions not narrowed", "release", current.Release.Version, "error", err.Error())
	}
}

func (p *permissions) cut(ctx context.Context, current *payload.Payload) error {
	if p.settled != current {
		have, err := p.review(ctx)
		if err != nil {
			return err
		}
		if len(permission.Missing(have, mayNarrow())) == 0 {
			if err := p.keepRelease(ctx, current); err != nil {
				return err
			}
		}
		if len(permission.Missing(have, mayWiden())) == 0 {
			if err := p.load(ctx); err != nil {
				return err
			}
		}
		p.settled = current
	}
	if err := p.drop(ctx, needPrune); err != nil {
		return err
	}
	// An update that has been accepted meanwhile needs its permissions on.
	if n := p.needs[needRollout]; n.target != nil && n.target != current {
		return nil
	}
	return p.drop(ctx, needRollout)
}

// mayNarrow is what it takes to write the role of a release. To let it allow less takes no more than that.
func mayNarrow() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{api.ReleaseRole},
		Verbs: []string{"get", "patch", "escalate"},
	}}
}

// keepRelease makes api.ReleaseRole allow what a release takes that does not bring the role itself.
func (p *permissions) keepRelease(ctx context.Context, current *payload.Payload) error {
	if slices.ContainsFunc(current.Manifests, func(m *manifest.Manifest) bool {
		return m.Is(rbacv1.GroupName, "ClusterRole") && m.Object.GetName() == api.ReleaseRole
	}) {
		return nil
	}
	role, err := p.roles.Get(ctx, api.ReleaseRole, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // somebody else has decided by which role the operator is allowed what
	}
	if err != nil {
		return fmt.Errorf("reading ClusterRole %s: %w", api.ReleaseRole, err)
	}
	rules := permission.Rules(current.Manifests)
	if reflect.DeepEqual(permission.Union(role.Rules), permission.Union(rules)) {
		return nil
	}
	return p.apply(ctx, api.ReleaseRole, permission.ReleaseDescription, rules)
}
