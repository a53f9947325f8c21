package rollout

import (
	"errors"

	"github.com/cluster-version/cvo/pkg/api"
	"github.com/cluster-version/cvo/pkg/apply/failure"
)

// reasonOf returns the status reason for a manifest that could not be applied.
func reasonOf(err error) string {
	if failed, ok := errors.AsType[*failure.Error](err); ok {
		return failed.Reason
	}
	return api.ReasonPayloadFailed
}
