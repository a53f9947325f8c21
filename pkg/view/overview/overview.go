// Package overview summarizes a ClusterVersion: the state of the cluster in one word, its release, the recommended updates, the other
// updates with their risks, and the last preflight. The text matches 'oc adm upgrade' byte for byte.
package overview

import (
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/internal/sorted"
	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/release"
	"github.com/cluster-version/cvo/pkg/update/reported"
)

// State is the state of a cluster in one word.
type State string

const (
	// AtRest means that the cluster runs the requested release.
	AtRest State = "AtRest"
	// Updating means that the cluster is moving to another release.
	Updating State = "Updating"
	// Attention means that the cluster needs an administrator to continue.
	Attention State = "Attention"
	// Unknown means that the cluster does not report its state, or has not seen the last change of its spec.
	Unknown State = "Unknown"
)

// Overview is the reported state of a cluster and its updates.
type Overview struct {
	State State `json:"state"`
	// Unobserved is true if the operator has not seen the last change of the spec, for example because it does not run.
	Unobserved bool                                      `json:"unobserved,omitempty"`
	Desired    configv1.Release                          `json:"desired"`
	Requested  *configv1.Update                          `json:"requested,omitempty"`
	Conditions []configv1.ClusterOperatorStatusCondition `json:"conditions"`
	Upstream   string                                    `json:"upstream,omitempty"`
	Channel    string                                    `json:"channel,omitempty"`
	// Recommended are the updates that are recommended for this cluster, newest first.
	Recommended []configv1.Release `json:"recommended"`
	// NotRecommended are the updates that are not recommended, or whose risks are unknown, newest first.
	NotRecommended []ConditionalUpdate `json:"notRecommended"`
	// Preflight is the result of the last preflight; nil if the operator reports none.
	Preflight *api.Preflight `json:"preflight,omitempty"`
}

// ConditionalUpdate is an update that is not recommended.
type ConditionalUpdate struct {
	configv1.Release `json:",inline"`
	Recommended      metav1.ConditionStatus `json:"recommended"`
	Reason           string                 `json:"reason"`
	Message          string                 `json:"message"`
	Risks            []Risk                 `json:"risks"`
}

// Risk is one risk of an update.
type Risk struct {
	Name    string `json:"name"`
	Message string `json:"message"`
	URL     string `json:"url"`
	// Applies is empty if the cluster reports only one status for all risks together.
	Applies metav1.ConditionStatus `json:"applies,omitempty"`
}

// New returns the overview of a ClusterVersion.
func New(cv *configv1.ClusterVersion) *Overview {
	v := &Overview{
		State: stateOf(cv), Unobserved: cv.Status.ObservedGeneration < cv.Generation, Desired: cv.Status.Desired, Requested: cv.Spec.DesiredUpdate,
		Upstream: string(cv.Spec.Upstream), Channel: cv.Spec.Channel,
		Conditions:     append([]configv1.ClusterOperatorStatusCondition{}, cv.Status.Conditions...),
		Recommended:    append([]configv1.Release{}, cv.Status.AvailableUpdates...),
		NotRecommended: []ConditionalUpdate{},
	}
	sorted.By(v.Recommended, release.NewestFirst)
	for _, update := range reported.NotRecommended(cv) {
		c := meta.FindStatusCondition(update.Conditions, api.UpdateRecommended)
		risky := ConditionalUpdate{Release: update.Release, Recommended: c.Status, Reason: c.Reason, Message: c.Message, Risks: []Risk{}}
		for _, risk := range update.Risks {
			risky.Risks = append(risky.Risks, Risk{Name: risk.Name, Message: risk.Message, URL: risk.URL, Applies: reported.AppliesTo(cv, risk)})
		}
		v.NotRecommended = append(v.NotRecommended, risky)
	}
	return v
}

func stateOf(cv *configv1.ClusterVersion) State {
	is := func(name configv1.ClusterStatusConditionType, status configv1.ConditionStatus) bool {
		c := api.FindCondition(cv.Status.Conditions, name)
		return c != nil && c.Status == status
	}
	switch {
	case is(api.Invalid, configv1.ConditionTrue), is(api.Failing, configv1.ConditionTrue), is(api.ReleaseAccepted, configv1.ConditionFalse):
		return Attention
	case cv.Status.ObservedGeneration < cv.Generation:
		return Unknown
	case is(configv1.OperatorProgressing, configv1.ConditionTrue):
		return Updating
	case is(configv1.OperatorProgressing, configv1.ConditionFalse):
		return AtRest
	}
	return Unknown
}

func (v *Overview) condition(name configv1.ClusterStatusConditionType) *configv1.ClusterOperatorStatusCondition {
	return api.FindCondition(v.Conditions, name)
}

// isPreflightOf reports whether a reported preflight is the requested one. It compares the fields that both have.
func isPreflightOf(preflight api.Preflight, asked configv1.Update) bool {
	if digest := release.Pullspec(asked.Image).Digest(); digest != "" && release.Pullspec(preflight.Image).Digest() != "" {
		return digest == release.Pullspec(preflight.Image).Digest()
	}
	if asked.Version != "" && preflight.Version != "" {
		return asked.Version == preflight.Version
	}
	return asked.Image == "" || asked.Image == preflight.Image
}
