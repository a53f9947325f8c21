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

	"github.com/cluster-version/cvo/pkg/apply/failure"
	"github.com/cluster-version/cvo/pkg/apply/kinds"
	"github.com/cluster-version/cvo/pkg/manifest"
)

// failed sets the expected result of the update after an error in the dry run.
func (r *run) failed(out *result, m *manifest.Manifest, err error) {
	status := statusOf(err)
	out.Message = errorText(m, err)
	switch {
	case kinds.IsNoMatch(err):
		r.notServed(&out.Object, m)
	case errors.Is(err, kinds.ErrUnavailable):
		out.Verdict = Unknown
	case missingNamespace(status, m) && r.content.HasNamespace(m.Object.GetNamespace()):
		out.Verdict, out.Message = Create, "once its Namespace exists"
	case missingNamespace(status, m):
		out.Verdict = Refuse
		out.Remedy = "create the namespace, unless one of the release's operators creates it; the release has no manifest for it"
	case notAllowed(status):
		out.Verdict, out.resource = NotAsked, resourceOf(m, status)
	case cannotDryRun(status):
		out.Verdict = Unknown
	case failure.IsUnreadable(err) && !r.knowsRunning(): // the value may be ours, and the update then replaces it
		out.Verdict = Unknown
	case !refusal(err, status):
		out.Verdict = NotAsked
	case r.content.ChangesSchema(m):
		out.Verdict = Unknown
		out.Message = "the current CRD rejects the object, but the release changes the CRD first: " + out.Message
	default:
		refused(&out.Object, err)
	}
}

// knowsRunning reports whether the manifests of the running release are known.
func (r *run) knowsRunning() bool {
	running, err := r.running()
	return err == nil && running != nil
}

// notServed sets the verdict on an object whose kind the server does not serve.
func (r *run) notServed(o *Object, m *manifest.Manifest) {
	gvk := m.GVK()
	crd := r.crds[gvk.GroupKind()]
	_, served := r.content.Replicas(gvk)
	switch {
	case crd != nil && !served:
		unserved(o, m)
	case crd == nil:
		o.Verdict = Refuse
		o.Remedy = "install a CRD for the kind, unless one of the release's operators does; the release does not contain it"
	case crd.Verdict == Create:
		o.Verdict, o.Message = Create, "once its CRD is established"
	case crd.Verdict == Modify, crd.Verdict == Recreate:
		o.Verdict, o.Message = Unknown, fmt.Sprintf("the cluster does not serve %s until the update has changed the CRD", gvk.GroupVersion())
	default:
		o.Verdict, o.Message = Unknown, fmt.Sprintf("the cluster does not serve %s; result for its CRD: %s", gvk.GroupVersion(), crd.Verdict)
	}
}

// unserved sets the verdict on an object in a version that the release's own CRD does not serve.
func unserved(o *Object, m *manifest.Manifest) {
	o.Verdict, o.Message = Refuse, fmt.Sprintf("the release's CRD does not serve %s", m.GVK().GroupVersion())
	o.Remedy = "correct the release's manifest, or " + failure.Exclude
}

// refused sets the verdict on a rejected object, and adds a remedy if the error contains none.
func refused(o *Object, err error) {
	o.Verdict = Refuse
	if failed, ok := errors.AsType[*failure.Error](err); ok {
		o.Paths, o.Remedy = failed.Fields, failed.Remedy
	}
	switch message := err.Error(); {
	case o.Remedy != "":
	case strings.Contains(message, "admission webhook "):
		o.Remedy = "ask the owner of this webhook, or " + failure.Exclude
	case strings.Contains(message, "ValidatingAdmissionPolicy "):
		o.Remedy = "change this policy, or " + failure.Exclude
	case strings.Contains(message, "exceeded quota"):
		o.Remedy = "raise the quota"
	default:
		o.Remedy = "correct the manifest, or " + failure.Exclude
	}
}

// breaksSchema sets the verdict on an object that the release's own CRD will reject.
func breaksSchema(o *Object, fields, texts []string) {
	o.Paths = fields
	o.Verdict, o.Message = Refuse, "the object breaks the schema of the release's CRD: "+strings.Join(texts, ", ")
	o.Remedy = "correct the release's manifest, or " + failure.Exclude
}

// statusOf returns the server's status, or the zero value if the error does not come from the server.
func statusOf(err error) metav1.Status {
	var status apierrors.APIStatus
	if errors.As(err, &status) {
		return status.Status()
	}
	return metav1.Status{}
}

// errorText returns the server's message without the values of a Secret.
func errorText(m *manifest.Manifest, err error) string {
	message := failure.Explain(err)
	if isSecret(m.GVK()) {
		message = withoutValues(m, message)
	}
	return message
}

// withoutValues replaces the values of a Secret in a text, both encoded and decoded.
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
	// Longest first, because one value may be part of another.
	slices.SortFunc(values, func(a, b string) int { return len(b) - len(a) })
	for _, value := range values {
		if value != "" {
			message = strings.ReplaceAll(message, value, "(hidden)")
		}
	}
	return message
}

// missingNamespace reports whether the namespace of an object does not exist.
func missingNamespace(status metav1.Status, m *manifest.Manifest) bool {
	return status.Reason == metav1.StatusReasonNotFound && status.Details != nil &&
		status.Details.Kind == "namespaces" && status.Details.Name == m.Object.GetNamespace()
}

// unauthorizedUser matches the API server's message about a missing permission, but no message of an admission plugin.
var unauthorizedUser = regexp.MustCompile(`: User ".*" cannot [a-z]+ resource |attempting to grant RBAC permissions not currently held|` +
	`cannot set blockOwnerDeletion `)

// notAllowed reports whether the user lacks a permission. Then the release is not the cause.
func notAllowed(status metav1.Status) bool {
	return status.Code == http.StatusUnauthorized || status.Code == http.StatusForbidden && unauthorizedUser.MatchString(status.Message)
}

// resourceOf returns a resource such as deployments.apps.
func resourceOf(m *manifest.Manifest, status metav1.Status) string {
	gk := m.GVK().GroupKind()
	if status.Details != nil && status.Details.Kind != "" {
		gk.Group, gk.Kind = status.Details.Group, status.Details.Kind
	}
	return gk.String()
}

// cannotDryRun reports whether a webhook blocks only the dry run and not the object, because it always has side effects or does not
// respond.
func cannotDryRun(status metav1.Status) bool {
	return strings.Contains(status.Message, "does not support dry run") ||
		status.Code == http.StatusInternalServerError && strings.Contains(status.Message, "failed calling webhook")
}

// refusal reports whether the server rejects the object. Other errors concern only the request, so a retry may succeed.
func refusal(err error, status metav1.Status) bool {
	if failure.IsManifestError(err) || failure.IsConversion(err) {
		return true
	}
	switch status.Code {
	case 0, http.StatusTooManyRequests, http.StatusRequestTimeout:
		return false
	}
	return status.Code >= 400 && status.Code < 500
}
