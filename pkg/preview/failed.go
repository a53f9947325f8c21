package preview

import (
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/cluster-version/cvo/pkg/apply"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// failed reads from an error what the update would meet.
func (r *run) failed(out *result, m *manifest.Manifest, err error) {
	status := statusOf(err)
	out.Message = words(m, err)
	switch {
	case apply.IsNoMatch(err):
		r.notServed(&out.Object, m)
	case errors.Is(err, apply.ErrUnavailable):
		out.Verdict = Unknown
	case missingNamespace(status, m) && r.brought.namespaces[m.Object.GetNamespace()]:
		out.Verdict, out.Message = Create, "once its Namespace is there"
	case missingNamespace(status, m):
		out.Verdict = Refuse
		out.Remedy = "create the namespace, unless an operator of the release does: the release has no manifest for it"
	case notAllowed(status):
		out.Verdict, out.resource = NotAsked, resourceOf(m, status)
	case cannotDryRun(status):
		out.Verdict = Unknown
	case !refusal(err, status):
		out.Verdict = NotAsked
	case r.brought.changesSchema(m):
		out.Verdict = Unknown
		out.Message = "the cluster's CRD does not allow it, and the release changes that CRD before: " + out.Message
	default:
		refused(&out.Object, err)
	}
}

// notServed tells about an object of a kind that the server does not serve.
func (r *run) notServed(o *Object, m *manifest.Manifest) {
	gvk := m.GVK()
	crd := r.brought.crds[gvk.GroupKind()]
	switch {
	case crd == nil || !r.brought.versions[gvk]:
		o.Verdict = Refuse
		o.Remedy = "see that the kind is served, unless an operator of the release does: the release has no CRD for it"
	case crd.Verdict == Create:
		o.Verdict, o.Message = Create, "once its CRD is established"
	case crd.Verdict == Modify, crd.Verdict == Recreate:
		o.Verdict, o.Message = Unknown, fmt.Sprintf("the cluster does not serve %s before the update has changed its CRD", gvk.GroupVersion())
	default:
		o.Verdict, o.Message = Unknown, fmt.Sprintf("the cluster does not serve %s; its CRD is %s", gvk.GroupVersion(), crd.Verdict)
	}
}

// refused finds a remedy where apply knows none.
func refused(o *Object, err error) {
	o.Verdict = Refuse
	if failure, ok := errors.AsType[*apply.Error](err); ok {
		o.Paths, o.Remedy = failure.Fields, failure.Remedy
	}
	const unmanage = "take the object out of the operator's hands (spec.overrides of the ClusterVersion)"
	switch message := err.Error(); {
	case o.Remedy != "":
	case strings.Contains(message, "admission webhook "):
		o.Remedy = "ask whoever runs this webhook, or " + unmanage
	case strings.Contains(message, "ValidatingAdmissionPolicy "):
		o.Remedy = "change this policy, or " + unmanage
	case strings.Contains(message, "exceeded quota"):
		o.Remedy = "raise the quota"
	default:
		o.Remedy = "correct the manifest, or " + unmanage
	}
}

// statusOf is what the server said; zero if nothing came from it.
func statusOf(err error) metav1.Status {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status()
	}
	return metav1.Status{}
}

// words are the server's. Those about a Secret are freed of its values.
func words(m *manifest.Manifest, err error) string {
	message := apply.Explain(err)
	if isSecret(m.GVK()) {
		message = withoutValues(m, message)
	}
	return message
}

// withoutValues replaces the values of a Secret in a text, as the manifest writes them and decoded.
func withoutValues(m *manifest.Manifest, message string) string {
	var values []string
	for _, field := range []string{"data", "stringData"} {
		fields, _, _ := unstructured.NestedFieldNoCopy(m.Object.Object, field)
		entries, _ := fields.(map[string]any)
		for _, value := range entries {
			s := fmt.Sprint(value)
			values = append(values, s)
			if decoded, err := base64.StdEncoding.DecodeString(s); err == nil {
				values = append(values, string(decoded))
			}
		}
	}
	// The longest first: one value may be a part of another.
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	for _, value := range values {
		if value != "" {
			message = strings.ReplaceAll(message, value, "(hidden)")
		}
	}
	return message
}

// missingNamespace reports whether the namespace of an object is not there.
func missingNamespace(status metav1.Status, m *manifest.Manifest) bool {
	return status.Reason == metav1.StatusReasonNotFound && status.Details != nil &&
		status.Details.Kind == "namespaces" && status.Details.Name == m.Object.GetNamespace()
}

// unauthorizedUser is how the API server words that a user lacks a right, unlike an admission plugin that forbids.
var unauthorizedUser = regexp.MustCompile(`: User ".*" cannot [a-z]+ resource |attempting to grant RBAC permissions not currently held|` +
	`cannot set blockOwnerDeletion `)

// notAllowed reports whether it is the user who may not do this, not the release.
func notAllowed(status metav1.Status) bool {
	return status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden && unauthorizedUser.MatchString(status.Message)
}

// resourceOf reads like deployments.apps.
func resourceOf(m *manifest.Manifest, status metav1.Status) string {
	gk := m.GVK().GroupKind()
	if status.Details != nil && status.Details.Kind != "" {
		gk.Group, gk.Kind = status.Details.Group, status.Details.Kind
	}
	return gk.String()
}

// cannotDryRun reports whether a webhook stands in the way of a dry run, rather than of the object: one that has side
// effects and cannot go without them, or one that does not answer.
func cannotDryRun(status metav1.Status) bool {
	return strings.Contains(status.Message, "does not support dry run") ||
		status.Code == http.StatusInternalServerError && strings.Contains(status.Message, "failed calling webhook")
}

// refusal reports whether it is the object that the server would not have; the other errors are about the request, and
// another try may bring an answer.
func refusal(err error, status metav1.Status) bool {
	if apply.IsManifestError(err) {
		return true
	}
	switch status.Code {
	case 0, http.StatusTooManyRequests, http.StatusRequestTimeout:
		return false
	}
	return status.Code >= 400 && status.Code < 500
}
