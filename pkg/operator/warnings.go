package operator

import (
	"context"

	"github.com/go-logr/logr"
)

// warnings receives what the API server warns of. Most is about manifests that nobody here can change, so it is told
// only when debugging.
type warnings struct{}

// HandleWarningHeaderWithContext implements rest.WarningHandlerWithContext.
func (warnings) HandleWarningHeaderWithContext(ctx context.Context, _ int, _, text string) {
	logr.FromContextOrDiscard(ctx).V(1).Info("warning of the API server", "text", text)
}
