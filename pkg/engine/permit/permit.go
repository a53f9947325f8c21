// Package permit gives the operator the permissions that a release needs, and no others. It writes the roles that package permission
// derives, and extends them only during an operation.
package permit

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/http"
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
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/engine/inventory"
	"github.com/cluster-version/cvo/pkg/engine/permission"
	"github.com/cluster-version/cvo/pkg/manifest"
	"github.com/cluster-version/cvo/pkg/payload"
)

// Roles gives the operator the permissions that releases need, and no others. ClusterRole api.ReleaseRole contains the permissions for the
// running release. ClusterRole api.UpdateRole temporarily contains further ones for an update, a preflight or a deletion of orphans; no
// other client writes it. If the operator already has all permissions, Roles only checks that once per operation and writes neither role.
type Roles struct {
	clock    clock.PassiveClock
	reviews  authorizationclient.AuthorizationV1Interface
	roles    rbacclient.ClusterRoleInterface
	patience time.Duration

	mu sync.Mutex
	// limited is true if the operator lacks any permission, according to the API server.
	limited bool
	// read is true once api.UpdateRole has been read into needs. Permissions from a previous process count as needs of a rollout.
	read  bool
	needs map[string]need
	// settled is the release to which api.ReleaseRole was last reduced.
	settled *payload.Payload
	// removed are the rules that were last removed from a role, at removedAt. A review may still contain them for a while.
	removed   []rbacv1.PolicyRule
	removedAt time.Time
}

// need contains the permissions that an operation needs in api.UpdateRole. target is the release of the operation; nil if unknown, or if
// the write of the rules got no response.
type need struct {
	target *payload.Payload
	rules  []rbacv1.PolicyRule
}

// Operations that may need extra permissions.
const (
	needRollout   = "rollout"
	needPreflight = "preflight"
	needPrune     = "prune"
)

const (
	// effectPatience is the maximum time until a written role takes effect. API servers receive it through a watch.
	effectPatience = 20 * time.Second
	effectInterval = 50 * time.Millisecond
	// maxAsked is the maximum number of permissions that are checked individually.
	maxAsked = 100
)

// New returns the roles for the operator account in cfg.
func New(clk clock.PassiveClock, cfg *rest.Config, httpClient *http.Client) (*Roles, error) {
	reviews, err := authorizationclient.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating a client for reviews: %w", err)
	}
	roles, err := rbacclient.NewForConfigAndClient(cfg, httpClient)
	if err != nil {
		return nil, fmt.Errorf("creating a client for roles: %w", err)
	}
	return &Roles{clock: clk, reviews: reviews, roles: roles.ClusterRoles(), patience: effectPatience, needs: map[string]need{}}, nil
}

// Rollout permits applying the target. running is the earlier payload, or nil.
func (p *Roles) Rollout(ctx context.Context, running, target *payload.Payload) error {
	command := "cvo release rbac " + target.Release.Image
	if running != nil && running.Release.Image != target.Release.Image {
		command += " --from " + running.Release.Image
	}
	return p.ensure(ctx, needRollout, need{target, permission.Rules(target.Manifests)}, command+" | kubectl apply -f -")
}

// Preflight permits dry runs for every object of a release.
func (p *Roles) Preflight(ctx context.Context, target *payload.Payload) error {
	return p.ensure(ctx, needPreflight, need{target, permission.Rules(target.Manifests)},
		"cvo release rbac "+target.Release.Image+" | kubectl apply -f -")
}

// Prune permits deleting orphans.
func (p *Roles) Prune(ctx context.Context, orphans []inventory.Record) error {
	list := make([]permission.Orphan, len(orphans))
	for i, o := range orphans {
		list[i] = permission.Orphan{Group: o.ID.Group, Kind: o.ID.Kind, Name: o.ID.Name}
	}
	return p.ensure(ctx, needPrune, need{rules: permission.Prune(list)}, "none; delete the objects in 'cvo status --orphans' manually")
}

// ensure permits an operation until release or Settle is called, even if the operation fails. It returns a *permission.Error if the
// operator lacks permissions and cannot extend them itself. Other operations do not wait until these permissions take effect.
func (p *Roles) ensure(ctx context.Context, what string, wanted need, remedy string) error {
	written, err := p.widen(ctx, what, wanted, remedy)
	if err != nil || len(written) == 0 {
		return err
	}
	return p.waitForEffect(ctx, written)
}

// widen adds the rules of an operation to api.UpdateRole. It returns the rules that have to take effect, or none if the operator already
// has all permissions.
func (p *Roles) widen(ctx context.Context, what string, wanted need, remedy string) ([]rbacv1.PolicyRule, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	have, err := p.review(ctx)
	if err != nil {
		return nil, err
	}
	if p.limited = isLimited(have); !p.limited {
		return nil, nil
	}
	missing := permission.Missing(have, wanted.rules)
	if len(permission.Missing(have, mayWiden())) > 0 {
		if missing, err = p.confirmed(ctx, missing); err != nil || len(missing) == 0 {
			return nil, err
		}
		return nil, &permission.Error{Missing: missing, Remedy: remedy}
	}
	if err := p.load(ctx); err != nil {
		return nil, err
	}
	if p.clock.Since(p.removedAt) < effectPatience {
		missing = permission.Union(missing, both(wanted.rules, p.removed))
	}
	if len(missing) == 0 && len(p.needs) == 0 {
		return nil, nil
	}
	before := maps.Clone(p.needs)
	if len(before) == 0 {
		wanted.rules = missing // permissions from other roles remain
	}
	if earlier := p.needs[what]; what == needRollout {
		wanted.rules = permission.Union(wanted.rules, earlier.rules)
	}
	p.needs[what] = wanted
	if err := p.write(ctx); err != nil {
		if p.needs = before; !isRejected(err) {
			// The role may or may not have these rules. They remain a need until release or Settle writes the role again. Without a target,
			// the need does not count as an accepted update.
			earlier := before[what]
			p.needs[what] = need{earlier.target, permission.Union(earlier.rules, wanted.rules)}
		}
		return nil, err
	}
	logr.FromContextOrDiscard(ctx).Info("extended the operator's permissions", "for", what, "rules", len(missing))
	return wanted.rules, nil
}

// both returns the rules that two sets have in common.
func both(a, b []rbacv1.PolicyRule) []rbacv1.PolicyRule {
	return permission.Missing(permission.Missing(b, a), a)
}

// isRejected reports whether the API server has rejected a request, so that it had no effect. After any other error the effect is unknown:
// the server did not respond, or could not complete the request.
func isRejected(err error) bool {
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= http.StatusBadRequest && code < http.StatusInternalServerError && code != http.StatusRequestTimeout
}

// isLimited reports whether rules allow less than cluster-admin.
func isLimited(rules []rbacv1.PolicyRule) bool {
	return len(permission.Missing(rules, everything())) > 0
}

// mayWiden returns the rules needed to extend the operator's permissions.
func mayWiden() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{api.UpdateRole},
		Verbs: []string{"get", "create", "patch", "escalate"},
	}}
}

// everything returns the rules of cluster-admin.
func everything() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{APIGroups: []string{rbacv1.APIGroupAll}, Resources: []string{rbacv1.ResourceAll}, Verbs: []string{rbacv1.VerbAll}}}
}

// reviewNamespace is the namespace for permission reviews. The operator has no Role there, so the response contains only its cluster-wide
// permissions.
const reviewNamespace = metav1.NamespaceDefault

// review returns the operator's cluster-wide permissions with one request. Authorizers other than RBAC may allow more; confirmed checks
// that.
func (p *Roles) review(ctx context.Context) ([]rbacv1.PolicyRule, error) {
	question := &authorizationv1.SelfSubjectRulesReview{Spec: authorizationv1.SelfSubjectRulesReviewSpec{Namespace: reviewNamespace}}
	answer, err := p.reviews.SelfSubjectRulesReviews().Create(ctx, question, metav1.CreateOptions{})
	if err != nil {
		return nil, fmt.Errorf("reading the operator's permissions: %w", err)
	}
	rules := make([]rbacv1.PolicyRule, len(answer.Status.ResourceRules))
	for i, r := range answer.Status.ResourceRules {
		rules[i] = rbacv1.PolicyRule{Verbs: r.Verbs, APIGroups: r.APIGroups, Resources: r.Resources, ResourceNames: r.ResourceNames}
	}
	return rules, nil
}

// confirmed returns the rules that no authorizer allows. Each check is a request. Beyond maxAsked checks, the remaining rules count as
// missing.
func (p *Roles) confirmed(ctx context.Context, rules []rbacv1.PolicyRule) ([]rbacv1.PolicyRule, error) {
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
			return nil, fmt.Errorf("reading the operator's permissions: %w", err)
		case asked == 1 && answer.Status.Allowed:
			return nil, nil // everything
		case asked > 1 && !answer.Status.Allowed:
			missing = append(missing, access)
		}
	}
	return permission.Union(missing), nil
}

// load reads the needs of the previous process, once per process.
func (p *Roles) load(ctx context.Context) error {
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

// write sets the rules of api.UpdateRole to the current needs.
func (p *Roles) write(ctx context.Context) error {
	var sets [][]rbacv1.PolicyRule
	for _, n := range p.needs {
		sets = append(sets, n.rules)
	}
	return p.apply(ctx, api.UpdateRole, permission.UpdateDescription, permission.Union(sets...))
}

func (p *Roles) apply(ctx context.Context, name, description string, rules []rbacv1.PolicyRule) error {
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

// waitForEffect waits until the API server allows the written rules.
func (p *Roles) waitForEffect(ctx context.Context, wanted []rbacv1.PolicyRule) error {
	var missing []rbacv1.PolicyRule
	err := wait.PollUntilContextTimeout(ctx, effectInterval, p.patience, true, func(ctx context.Context) (bool, error) {
		have, err := p.review(ctx)
		missing = permission.Missing(have, wanted)
		return err == nil && len(missing) == 0, err
	})
	if wait.Interrupted(err) && ctx.Err() == nil {
		return &permission.Error{Missing: missing, Remedy: fmt.Sprintf(
			"bind ClusterRole %s, which contains these rules, to the operator's service account with a ClusterRoleBinding", api.UpdateRole)}
	}
	return err
}

// EndPreflight removes the permissions of a completed preflight.
func (p *Roles) EndPreflight(ctx context.Context) { p.release(ctx, needPreflight) }

// release removes the permissions of a completed operation.
func (p *Roles) release(ctx context.Context, what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if err := p.drop(ctx, what); err != nil {
		logr.FromContextOrDiscard(ctx).Info("cannot reduce the operator's permissions", "error", err.Error())
	}
}

func (p *Roles) drop(ctx context.Context, what string) error {
	dropped, ok := p.needs[what]
	if !ok {
		return nil
	}
	delete(p.needs, what)
	if err := p.write(ctx); err != nil {
		p.needs[what] = dropped
		return err
	}
	p.remove(dropped.rules)
	logr.FromContextOrDiscard(ctx).Info("reduced the operator's permissions", "after", what)
	return nil
}

// remove records that rules were removed from a role.
func (p *Roles) remove(rules []rbacv1.PolicyRule) {
	if p.clock.Since(p.removedAt) < effectPatience {
		rules = permission.Union(p.removed, rules)
	}
	p.removed, p.removedAt = rules, p.clock.Now()
}

// Settle reduces the permissions to those of a completely applied release. A release normally contains the role for them. If it does not,
// Settle writes the role, provided it exists.
func (p *Roles) Settle(ctx context.Context, current *payload.Payload) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.limited {
		return
	}
	if err := p.cut(ctx, current); err != nil {
		logr.FromContextOrDiscard(ctx).Info("cannot reduce the operator's permissions", "release", current.Release.Version, "error", err.Error())
	}
}

func (p *Roles) cut(ctx context.Context, current *payload.Payload) error {
	if p.settled != current {
		have, err := p.review(ctx)
		if err != nil {
			return err
		}
		p.limited = isLimited(have)
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
	// An update that was accepted in the meantime still needs its permissions.
	if n := p.needs[needRollout]; n.target != nil && n.target != current {
		return nil
	}
	return p.drop(ctx, needRollout)
}

// mayNarrow returns the rules needed to reduce the role of a release.
func mayNarrow() []rbacv1.PolicyRule {
	return []rbacv1.PolicyRule{{
		APIGroups: []string{rbacv1.GroupName}, Resources: []string{"clusterroles"}, ResourceNames: []string{api.ReleaseRole},
		Verbs: []string{"get", "patch", "escalate"},
	}}
}

// keepRelease writes api.ReleaseRole if the release does not contain the role.
func (p *Roles) keepRelease(ctx context.Context, current *payload.Payload) error {
	if slices.ContainsFunc(current.Manifests, func(m *manifest.Manifest) bool {
		return m.Is(rbacv1.GroupName, "ClusterRole") && m.Object.GetName() == api.ReleaseRole
	}) {
		return nil
	}
	role, err := p.roles.Get(ctx, api.ReleaseRole, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil // an administrator manages the operator's roles
	}
	if err != nil {
		return fmt.Errorf("reading ClusterRole %s: %w", api.ReleaseRole, err)
	}
	rules := permission.Rules(current.Manifests)
	if reflect.DeepEqual(permission.Union(role.Rules), permission.Union(rules)) {
		return nil
	}
	if err := p.apply(ctx, api.ReleaseRole, permission.ReleaseDescription, rules); err != nil {
		return err
	}
	p.remove(permission.Missing(rules, role.Rules))
	return nil
}
