// Package request changes the updates of a cluster: it requests an update or a rollback, cancels an update, sets the channel, accepts
// risks, and pauses updates. A Plan computes a Request from the current ClusterVersion, or refuses it, without side effects. A Sender sends
// the request, which fails if the ClusterVersion has changed since. The caller, a command or a console, handles flags and output.
package request

import (
	"fmt"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/cluster-version/cvo/pkg/api"
)

// Values of --dry-run, as in kubectl.
const (
	DryRunNone   = "none"
	DryRunClient = "client"
	DryRunServer = "server"
)

// DryRuns returns the valid values of Sender.DryRun.
func DryRuns() []string { return []string{DryRunNone, DryRunServer, DryRunClient} }

// End is one end of a request: the earlier state or the requested state.
type End struct {
	Version      string   `json:"version,omitempty"`
	Image        string   `json:"image,omitempty"`
	Architecture string   `json:"architecture,omitempty"`
	Force        bool     `json:"force,omitempty"`
	Channel      string   `json:"channel,omitempty"`
	AcceptRisks  []string `json:"acceptRisks,omitempty"`
	Mode         string   `json:"mode,omitempty"`
}

// Request is a change of a ClusterVersion, computed from its current state.
type Request struct {
	Action string `json:"action"`
	// Changed is true if the request changes the spec.
	Changed bool   `json:"changed"`
	DryRun  string `json:"dryRun,omitempty"`
	// Message is the result for text output.
	Message  string   `json:"message"`
	From     End      `json:"from"`
	To       End      `json:"to"`
	Warnings []string `json:"warnings,omitempty"`
	// Paused means that the request does not take effect before updates are resumed.
	Paused bool `json:"paused,omitempty"`
	// Patch is the JSON merge patch of the request; nil if there was nothing to change.
	Patch map[string]any `json:"patch,omitempty"`

	// Spec is the requested spec, and SpecPatch the patch to it from the current spec. Both are nil if there is nothing to change.
	Spec      *configv1.ClusterVersionSpec `json:"-"`
	SpecPatch map[string]any               `json:"-"`
	// startsRollout is true if the operator rolls out a release because of the request. A pause stops it.
	startsRollout bool
	// failure is the first part of the error if the API server rejects the request.
	failure string
	// dryRunFirst is true if a dry run has to precede the request, because the API server may silently store only a part of it.
	dryRunFirst bool
	// checkStored, if set, checks the object that the API server has stored.
	checkStored func(*configv1.ClusterVersion) error
}

// Plan computes a request. After an error nothing is requested, but warnings are still printed.
type Plan func(cv *configv1.ClusterVersion, r *Request) error

func (r *Request) warn(format string, args ...any) {
	r.Warnings = append(r.Warnings, strings.TrimRight(fmt.Sprintf(format, args...), "\n"))
}

// update sets spec.desiredUpdate. It sends four fields even if they are empty, to remove their values from an earlier request. It also
// removes an earlier mode, such as Preflight, but keeps accepted risks.
func (r *Request) update(cv *configv1.ClusterVersion, update configv1.Update) {
	r.Spec = cv.Spec.DeepCopy()
	fields := map[string]any{
		"architecture": update.Architecture, "version": update.Version, "image": update.Image, "force": update.Force,
	}
	if asked := cv.Spec.DesiredUpdate; asked != nil {
		if update.AcceptRisks = asked.AcceptRisks; len(update.AcceptRisks) > 0 {
			fields["acceptRisks"] = update.AcceptRisks
		}
		if asked.Mode != "" {
			fields["mode"] = nil
		}
	}
	if update.Mode != "" {
		fields["mode"] = update.Mode
	}
	r.Spec.DesiredUpdate = &update
	r.SpecPatch = map[string]any{"desiredUpdate": fields}
	r.startsRollout = update.Mode == "" && update.Version+update.Image != ""
	r.To = endOfUpdate(update)
}

func endOfRelease(release configv1.Release) End {
	return End{Version: release.Version, Image: release.Image, Architecture: string(release.Architecture)}
}

func endOfUpdate(update configv1.Update) End {
	return End{
		Version: update.Version, Image: update.Image, Architecture: string(update.Architecture), Force: update.Force,
		AcceptRisks: RiskNames(update.AcceptRisks), Mode: string(update.Mode),
	}
}

// RiskNames returns the names of the risks in the same order.
func RiskNames(risks []configv1.AcceptRisk) []string {
	names := make([]string, 0, len(risks))
	for _, risk := range risks {
		names = append(names, risk.Name)
	}
	return names
}

// Check returns an error if the API server has not stored all fields of the request.
func (r *Request) Check(stored *configv1.ClusterVersion) error {
	if r.checkStored == nil {
		return nil
	}
	return r.checkStored(stored)
}

func (r *Request) takeRisk(target configv1.Release, risk *metav1.Condition) {
	r.warn("with --allow-not-recommended you have accepted the risks with %s and bypassed %s=%s %s: %s",
		target.Version, api.UpdateRecommended, risk.Status, risk.Reason, risk.Message)
}
