package rollout

import (
	"errors"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply"
)

// reasonOf returns the status reason for a manifest that could not be applied.
func reasonOf(err error) string {
	if failure, ok := errors.AsType[*apply.Error](err); ok {
		return failure.Reason
	}
	return api.ReasonPayloadFailed
}
