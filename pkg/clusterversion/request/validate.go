package request

import (
	"net/url"
	"regexp"

	"github.com/blang/semver/v4"
	configv1 "github.com/openshift/api/config/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// clusterIDPattern is a version 4 UUID of the RFC 4122 variant.
var clusterIDPattern = regexp.MustCompile(`(?i)^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)

// IsClusterID reports whether an ID is a UUID of the kind that the spec requires.
func IsClusterID(id string) bool { return clusterIDPattern.MatchString(id) }

// Validate checks the spec and clears each invalid field in cv, so that the other fields stay in effect. The rules and texts are those of
// OpenShift's operator.
func Validate(cv *configv1.ClusterVersion) field.ErrorList {
	var errs field.ErrorList
	if problems := validation.IsDNS1035Label(cv.Name); len(problems) > 0 {
		errs = append(errs, field.Invalid(field.NewPath("metadata", "name"), cv.Name, problems[0]))
	}
	spec := field.NewPath("spec")
	if _, err := url.Parse(string(cv.Spec.Upstream)); err != nil {
		errs = append(errs, field.Invalid(spec.Child("upstream"), cv.Spec.Upstream, "must be a valid URL or empty"))
		cv.Spec.Upstream = ""
	}
	if id := cv.Spec.ClusterID; id != "" && !clusterIDPattern.MatchString(string(id)) {
		errs = append(errs, field.Invalid(spec.Child("clusterID"), id, "must be an RFC4122-variant UUID"))
		cv.Spec.ClusterID = ""
	}
	if problems := validateDesiredUpdate(cv, spec.Child("desiredUpdate")); len(problems) > 0 {
		errs = append(errs, problems...)
		cv.Spec.DesiredUpdate = nil
	}
	return errs
}

func validateDesiredUpdate(cv *configv1.ClusterVersion, path *field.Path) field.ErrorList {
	update := cv.Spec.DesiredUpdate
	switch {
	case update == nil:
		return nil
	case !IsUpdate(update) && len(update.AcceptRisks) > 0:
		return nil
	case !IsUpdate(update):
		return field.ErrorList{field.Required(path, "must specify architecture, version, or image")}
	case update.Architecture != "" && update.Image != "":
		return field.ErrorList{field.Forbidden(path.Child("architecture"), "cannot be set together with image: the image has its architecture")}
	case update.Version == "" && update.Image != "":
		return nil
	}
	version := requestedVersion(cv, *update)
	if _, err := semver.Parse(version); err != nil {
		return field.ErrorList{field.Invalid(path.Child("version"), version, "must be a semantic version (1.2.3[-...])")}
	}
	if update.Image != "" {
		return nil
	}
	switch len(requestedImages(cv, *update)) {
	case 0:
		return field.ErrorList{field.Invalid(path.Child("version"), version, "when image is empty the update must be an available update")}
	case 1:
		return nil
	default:
		return field.ErrorList{field.Invalid(path.Child("version"), version, "there are multiple possible payloads for this version, specify the exact image")}
	}
}
