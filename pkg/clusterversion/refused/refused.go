// Package refused reduces a status to the part that the API server accepts. It finds the fields that a rejection names and restores their
// previous values. It is pure.
package refused

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	configv1 "github.com/openshift/api/config/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/cluster-version/cvo/pkg/api"
)

// Is reports whether an error rejects the content of a status, so that another content may succeed.
func Is(err error) bool { return apierrors.IsInvalid(err) || IsTooLarge(err) }

// IsTooLarge reports whether an error rejects a status because of its size. The API server has a limit of its own. It passes on errors of
// etcd and of its client as internal errors, which have no reason.
func IsTooLarge(err error) bool {
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok && answer.ErrStatus.Code == http.StatusInternalServerError {
		text := answer.ErrStatus.Message
		return strings.Contains(text, "etcdserver: request is too large") || strings.Contains(text, "trying to send message larger than max")
	}
	return apierrors.IsRequestEntityTooLargeError(err)
}

// Fields returns the status fields that are named in a rejection by the API server. If the status is too large, these are the updates,
// whose number and texts an update service determines.
func Fields(err error) []string {
	if IsTooLarge(err) {
		return []string{"availableUpdates", "conditionalUpdateRisks", "conditionalUpdates"}
	}
	var fields []string
	if answer, ok := errors.AsType[*apierrors.StatusError](err); ok && answer.ErrStatus.Details != nil {
		for _, cause := range answer.ErrStatus.Details.Causes {
			path, ok := strings.CutPrefix(cause.Field, "status.")
			if !ok {
				continue
			}
			name := path
			if end := strings.IndexAny(path, ".["); end >= 0 {
				name = path[:end]
			}
			if name == "conditions" {
				if end := strings.IndexByte(path, ']'); end >= 0 {
					name = path[:end+1]
				}
			}
			fields = append(fields, name)
		}
	}
	slices.Sort(fields)
	return slices.Compact(fields)
}

// conditionField is the prefix of a field name that stands for one condition.
const conditionField = "condition "

// Lasting replaces the index of a condition by its type, because another status may have more or fewer conditions.
func Lasting(fields []string, status configv1.ClusterVersionStatus) []string {
	out := slices.Clone(fields)
	for i, field := range out {
		if kind, ok := conditionOfField(field, status); ok {
			out[i] = conditionField + string(kind)
		}
	}
	return out
}

func conditionOfField(field string, status configv1.ClusterVersionStatus) (configv1.ClusterStatusConditionType, bool) {
	if kind, ok := strings.CutPrefix(field, conditionField); ok {
		return configv1.ClusterStatusConditionType(kind), true
	}
	var at int
	if _, err := fmt.Sscanf(field, "conditions[%d]", &at); err != nil || at < 0 || at >= len(status.Conditions) {
		return "", false
	}
	return status.Conditions[at].Type, true
}

// AllButConditions returns all status fields except the conditions and the generation.
func AllButConditions() []string {
	return []string{"availableUpdates", "capabilities", "conditionalUpdateRisks", "conditionalUpdates", "desired", "history", "versionHash"}
}

// Reduce returns the status with the previous values of the given fields.
func Reduce(before, status configv1.ClusterVersionStatus, fields []string) configv1.ClusterVersionStatus {
	out := *status.DeepCopy()
	for _, field := range fields {
		switch field {
		case "availableUpdates":
			out.AvailableUpdates = before.AvailableUpdates
		case "capabilities":
			out.Capabilities = before.Capabilities
		case "conditionalUpdateRisks":
			out.ConditionalUpdateRisks = before.ConditionalUpdateRisks
		case "conditionalUpdates":
			out.ConditionalUpdates = before.ConditionalUpdates
		case "conditions":
			out.Conditions = before.Conditions
		case "desired":
			out.Desired = before.Desired
		case "history":
			out.History = before.History
		case "versionHash":
			out.VersionHash = before.VersionHash
		default:
			kind, ok := conditionOfField(field, status)
			if !ok {
				continue
			}
			// The condition keeps its index, so that the order of conditions does not change.
			if old, next := api.FindCondition(before.Conditions, kind), api.FindCondition(out.Conditions, kind); old != nil && next != nil {
				*next = *old
			} else {
				out.Conditions = slices.DeleteFunc(out.Conditions, func(c configv1.ClusterOperatorStatusCondition) bool { return c.Type == kind })
			}
		}
	}
	return out
}
